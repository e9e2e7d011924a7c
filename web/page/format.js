// Numbers and device names as people read them.

export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[unit]}`;
}

export function seconds(count) {
  return count < 0.1 ? `${Math.round(count * 1000)} ms` : `${count.toFixed(count < 10 ? 1 : 0)} s`;
}

export function speed(tokensPerSecond) {
  return `${tokensPerSecond.toFixed(tokensPerSecond < 10 ? 1 : 0)} tokens/s`;
}

export function deviceLine({ provider, device }) {
  if (provider === "cpu") return "CPU";
  const name = String(device.name ?? "").trim();
  return `WebGPU${name ? `: ${name}` : ""}`;
}
