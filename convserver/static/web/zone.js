// The days of a form's filters begin and end at midnight where the reader is.

document.querySelector('input[name="zone"]').value = new Intl.DateTimeFormat().resolvedOptions().timeZone;
