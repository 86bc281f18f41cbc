// Images of a message: read from files, as many as one message holds, and shown above the box.

const MAX_BYTES = 10 * 1024 * 1024; // in all: a frame holds 16 MiB, and base64 takes a third more

/** Return {image}, the file as a data URL to stand beside these `images`, or {problem}. */
export async function read(file, images) {
  const image = await dataUrl(file);
  const size = [...images, image].reduce((sum, each) => sum + each.length, 0);
  return size > MAX_BYTES * 1.34 ? { problem: `${file.name} is too large: a message can have 10 MB of images.` } : { image };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** How an image stands above the box, with a button that removes it. */
export function item(source, index, remove) {
  const box = document.createElement("li");
  const image = document.createElement("img");
  image.src = source;
  image.alt = `Image ${index + 1}`;
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-label", `Remove image ${index + 1}`);
  button.textContent = "×";
  button.addEventListener("click", remove);
  box.append(image, button);
  return box;
}
