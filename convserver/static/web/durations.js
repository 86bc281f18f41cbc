// Lengths of time in a few letters.

/** As in `7 s`, `2 min 05 s` and `1 h 02 min`; never less than nothing. */
export function duration(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  if (hours) return `${hours} h ${two(minutes)} min`;
  return minutes ? `${minutes} min ${two(seconds % 60)} s` : `${seconds} s`;
}

const two = (number) => String(number).padStart(2, "0");
