// The pictures of the gallery: each is a graph of kernel packs or of tensor operations, whose state
// stays on the device from frame to frame.
import { PACKS } from "./packs.js";

/** Times that a picture is painted over; later ones change little. */
const LAYERS = 8;
/** Spans of a view below this have pixels with equal coordinates. */
const DEEPEST = 1e-13;

/**
 * Cells of a picture on a GPU, on one that is emulated, and where the CPU computes it. Of points, also
 * their number.
 */
const SIZES = {
  diffusion: { gpu: [512, 384], soft: [256, 192], cpu: [160, 120] },
  fluid: { gpu: [512, 384], soft: [160, 120], cpu: [64, 48] },
  life: { gpu: [768, 576], soft: [320, 240], cpu: [96, 72] },
  mandelbrot: { gpu: [960, 720], soft: [320, 240], cpu: [96, 72] },
  boids: { gpu: [960, 720, 65536], soft: [320, 240, 768], cpu: [96, 72, 128] },
  bodies: { gpu: [960, 720, 4096], soft: [320, 240, 768], cpu: [96, 72, 128] },
  photo: { gpu: [640, 480], soft: [320, 240], cpu: [80, 60] },
};

function sizeOf(id, { provider, device }) {
  if (provider === "cpu") return SIZES[id].cpu;
  return device.kind === "software" ? SIZES[id].soft : SIZES[id].gpu;
}

/** Random numbers from 0 to 1, the same at each start. */
function random(seed = 1) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / (1 << 24);
  };
}

/** A picture and its state, which are tensors on the device. */
class Scene {
  steps = 0;
  engine;
  width;
  height;
  count;
  /** Tensors that the next step begins with. */
  state = [];
  #packs = new Map();

  constructor(engine, id) {
    this.engine = engine;
    [this.width, this.height, this.count] = sizeOf(id, engine.info);
  }

  async load(...names) {
    for (const name of names) {
      const { manifest, files } = PACKS[name];
      // A text has no folder whose name could be the pack's.
      this.#packs.set(name,
        await this.engine.pack({ manifest: `name = "${name}"\n${manifest}`, files }));
    }
  }

  /** Returns every result of a pack. */
  all(name, operands, values) {
    return this.#packs.get(name).run(operands, values);
  }

  /** Returns the first result of a pack. */
  run(name, operands, values) {
    const [result] = this.all(name, operands, values);
    return result;
  }

  tensor(data, shape) {
    return this.engine.tensor(Float32Array.from(data), shape);
  }

  /** Computes the next step and its pixels; null if nothing changes. */
  async frame(pointer) {
    const before = this.state;
    const [pixels, ...state] = this.engine.tidy(() => {
      const state = this.step(pointer);
      return state ? [this.pixels(state), ...state] : [];
    });
    if (!pixels) return null;
    this.state = state;
    before.filter((tensor) => !state.includes(tensor)).forEach((tensor) => tensor.dispose());
    this.steps += 1;
    await this.engine.eval(pixels, ...state);
    return pixels;
  }

  dispose() {
    this.state.forEach((tensor) => tensor.dispose());
    this.#packs.forEach((pack) => pack.dispose());
  }
}

class Diffusion extends Scene {
  async begin() {
    await this.load("rate-colors");
    const [width, height] = [this.width, this.height];
    const next = random(3);
    const second = new Float32Array(width * height);
    for (let spot = 0; spot < 24; spot += 1) {
      const [x, y] = [Math.floor(next() * (width - 8)), Math.floor(next() * (height - 8))];
      for (let i = 0; i < 64; i += 1) second[(y + (i >> 3)) * width + x + (i & 7)] = 0.5;
    }
    const { engine } = this;
    this.at = [engine.arange(0, width).unsqueeze(0), engine.arange(0, height).unsqueeze(1)];
    this.state = [
      this.engine.ones([height, width]),
      this.engine.tensor(second, [height, width]),
    ];
  }

  /** The neighbours of each cell of a torus, less the cell. */
  #laplacian(x) {
    const turned = (axis, by, size) =>
      x.narrow(axis, by, size).concat([x.narrow(axis, 0, by)], axis);
    const [w, h] = [this.width, this.height];
    return turned(1, 1, w).add(turned(1, w - 1, w)).add(turned(0, 1, h)).add(turned(0, h - 1, h))
      .sub(x.mul(4));
  }

  step(pointer) {
    let [first, second] = this.state;
    // Numbers that change are values and not part of the graph, which keeps its plan.
    const brush = this.tensor([pointer.x, pointer.y, pointer.pressed ? 0.5 : 0], [3]);
    const away = this.at.map((at, axis) => at.sub(brush.index(0, axis)).square());
    const drop = away[0].add(away[1]).mul(-0.06).exp().mul(brush.index(0, 2));
    second = second.maximum(drop);
    for (let i = 0; i < 4; i += 1) {
      const rate = first.mul(second).mul(second);
      const fed = first.neg().add(1).mul(0.037);
      [first, second] = [
        first.add(this.#laplacian(first).mul(0.19)).sub(rate).add(fed),
        second.add(this.#laplacian(second).mul(0.085)).add(rate).sub(second.mul(0.037 + 0.06)),
      ];
    }
    return [first, second];
  }

  pixels([, second]) {
    return this.run("rate-colors", [second]);
  }
}

class Fluid extends Scene {
  async begin() {
    await this.load("fluid-advect", "fluid-divergence", "fluid-pressure", "fluid-project",
      "fluid-colors");
    this.iterations = this.engine.info.provider === "cpu" ? 6 : 24;
    this.state = [
      this.engine.zeros([this.height, this.width, 4]),
      this.engine.zeros([this.height, this.width]),
    ];
  }

  #stir({ x, y, dx, dy, pressed }) {
    const radius = this.width / 26;
    if (pressed) {
      const push = (by) => Math.max(-8, Math.min(8, by)) * 0.5;
      return [x, y, push(dx), push(dy), radius, 0.5];
    }
    // Two jets that turn slowly, one of each dye.
    const turn = this.steps * 0.013;
    const side = this.steps % 2 === 0 ? 1 : -1;
    return [this.width * (0.5 - 0.22 * side), this.height * 0.5,
      side * Math.cos(turn) * 0.9, side * Math.sin(turn) * 0.9, radius, 0.22 * side];
  }

  step(pointer) {
    const stir = this.tensor(this.#stir(pointer), [6]);
    const moved = this.run("fluid-advect", [this.state[0], stir]);
    const divergence = this.run("fluid-divergence", [moved]);
    let pressure = this.state[1];
    for (let i = 0; i < this.iterations; i += 1) {
      pressure = this.run("fluid-pressure", [pressure, divergence]);
    }
    return [this.run("fluid-project", [moved, pressure]), pressure];
  }

  pixels([field]) {
    return this.run("fluid-colors", [field]);
  }
}

class Life extends Scene {
  async begin() {
    await this.load("life", "life-colors");
    const next = random();
    const cells = Uint32Array.from({ length: this.width * this.height }, () =>
      (next() < 0.28 ? 255 : 0));
    this.state = [this.engine.tensor(cells, [this.height, this.width])];
  }

  step({ x, y, pressed }) {
    const radius = Math.max(this.width / 90, 2);
    const brush = this.tensor([x, y, radius, pressed ? 1 : 0], [4]);
    return [this.run("life", [this.state[0], brush])];
  }

  pixels([cells]) {
    return this.run("life-colors", [cells]);
  }
}

/** The orbit of a point, from 0 on, of `limit` steps: its length decides the plan. */
function orbit([px, py], limit) {
  const all = new Float32Array(2 * limit + 2);
  let [x, y] = [0, 0];
  for (let i = 0; i <= limit; i += 1) {
    [all[2 * i], all[2 * i + 1]] = [x, y];
    if (x * x + y * y < 1e6) [x, y] = [x * x - y * y + px, 2 * x * y + py];
  }
  return all;
}

class Mandelbrot extends Scene {
  middle = [-0.6, 0];
  span = 2.6;
  limit = 256;
  changed = true;

  async begin() {
    await this.load("mandelbrot", "escape-colors");
  }

  /** Zooms so that the point under the pointer keeps its place. */
  zoom(factor, { x, y }) {
    const span = Math.max(DEEPEST, Math.min(4, this.span * factor));
    const part = span / this.span;
    const away = [x - this.width / 2, y - this.height / 2].map((at) => at / this.height * this.span);
    this.middle = this.middle.map((middle, i) => middle + away[i] * (1 - part));
    this.span = span;
    // Deeper, points need longer to escape. In coarse steps: another length is another plan.
    const depth = Math.max(0, Math.log2(2.6 / span));
    this.limit = Math.floor((256 + 70 * depth) / 256) * 256;
    this.changed = true;
  }

  step() {
    if (!this.changed) return null;
    this.changed = false;
    const steps = this.tensor(orbit(this.middle, this.limit), [this.limit + 1, 2]);
    const view = this.tensor([this.span, this.limit], [2]);
    return [this.run("mandelbrot", [steps, view], { width: this.width, height: this.height })];
  }

  pixels([escape]) {
    return this.run("escape-colors", [escape], { limit: this.limit });
  }
}

/** Birds or bodies: position and velocity. */
class Points extends Scene {
  async start(pack, even, gain, point) {
    await this.load(pack, "points", "points-colors");
    Object.assign(this, { pack, even, gain });
    const next = random(7);
    const all = new Float32Array(4 * this.count);
    for (let i = 0; i < this.count; i += 1) all.set(point(next), 4 * i);
    this.state = [this.engine.tensor(all, [this.count, 4])];
  }

  step() {
    return [this.run(this.pack, [this.state[0]])];
  }

  pixels([points]) {
    const { width, height, even, gain } = this;
    const counts = this.run("points", [points], { width, height, even });
    return this.run("points-colors", [counts], { gain });
  }
}

class Boids extends Points {
  async begin() {
    await this.load("flock-count", "flock-ends", "flock-sort");
    // In smaller cells steps are shorter, so that birds meet those around them for a while.
    this.side = Math.max(16, Math.min(512, Math.floor(Math.sqrt(this.count / 12))));
    this.dt = 0.016 * Math.max(0.15, Math.min(1, 2 / (0.11 * this.side)));
    await this.start("boids", 0, this.count > 10000 ? 0.8 : 2.5, (next) => {
      const turn = next() * 2 * Math.PI;
      return [next() * 2 - 1, next() * 2 - 1, Math.cos(turn) * 0.3, Math.sin(turn) * 0.3];
    });
  }

  /** Sorts the birds by the cells of a grid, so that each looks at nine cells alone. */
  step() {
    const { side, dt, state: [birds] } = this;
    const [counts, ranks] = this.all("flock-count", [birds], { side });
    const ends = this.run("flock-ends", [counts]);
    const sorted = this.run("flock-sort", [birds, ranks, ends]);
    return [this.run("boids", [sorted, ends], { dt })];
  }
}

class Bodies extends Points {
  begin() {
    // A disc that turns, with more bodies in the middle.
    return this.start("nbody", 1, 1.2, (next) => {
      const [turn, part] = [next() * 2 * Math.PI, next()];
      const radius = 0.06 + 0.74 * part;
      const speed = Math.sqrt(part / radius) * 0.92;
      const [x, y] = [Math.cos(turn), Math.sin(turn)];
      return [x * radius, y * radius, -y * speed, x * speed];
    });
  }
}

class Photo extends Scene {
  layers = 0;

  async begin(picture) {
    await this.load("paint", "photo-colors");
    const { width, height } = this;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d");
    if (picture) {
      const scale = Math.max(width / picture.width, height / picture.height);
      const [w, h] = [picture.width * scale, picture.height * scale];
      context.drawImage(picture, (width - w) / 2, (height - h) / 2, w, h);
    } else {
      drawLandscape(context, width, height);
    }
    const { data } = context.getImageData(0, 0, width, height);
    const values = Float32Array.from(data, (value) => value / 255);
    this.state = [this.engine.tensor(values, [height, width, 4])];
  }

  step() {
    if (this.layers > LAYERS) return null;
    const [picture] = this.state;
    const radius = Math.max(2, Math.round(this.width / 160));
    // The first frame is the picture itself.
    return [this.layers++ === 0 ? picture : this.run("paint", [picture], { radius })];
  }

  pixels([picture]) {
    return this.run("photo-colors", [picture]);
  }
}

/** The picture that is filtered if the visitor has chosen none. */
function drawLandscape(context, width, height) {
  const sky = context.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, "#27307a");
  sky.addColorStop(0.55, "#f09a5b");
  sky.addColorStop(1, "#3b2b52");
  context.fillStyle = sky;
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#ffe9b8";
  context.beginPath();
  context.arc(width * 0.68, height * 0.42, height * 0.09, 0, 7);
  context.fill();
  const next = random(11);
  for (let hill = 0; hill < 4; hill += 1) {
    context.fillStyle = ["#6b4a86", "#4c3a75", "#2f2a58", "#191a3a"][hill];
    context.beginPath();
    context.moveTo(0, height);
    for (let x = 0; x <= width; x += 4) {
      const wave = Math.sin(x / width * (5 + 3 * hill) + hill * 1.7) + (next() - 0.5) * 0.3;
      context.lineTo(x, height * (0.56 + 0.11 * hill) + wave * height * 0.05);
    }
    context.lineTo(width, height);
    context.fill();
  }
}

/** Name, what the pointer does, class. */
export const SCENES = {
  diffusion: ["Reaction and diffusion", "A graph of tensor operations. Drag to add a substance.",
    Diffusion],
  fluid: ["Fluid", "Four kernel packs. Drag to stir and dye it.", Fluid],
  life: ["Game of Life", "Drag to revive cells.", Life],
  mandelbrot: ["Mandelbrot set", "Click or press Space to zoom in; the wheel and + and - zoom too.",
    Mandelbrot],
  boids: ["Flock", "Every bird looks at the birds around it.", Boids],
  bodies: ["N-body", "Every body attracts every other one.", Bodies],
  photo: ["Your picture", "Choose or drop a picture; each step paints over it.", Photo],
};

/** Creates a picture in its first state. */
export async function makeScene(engine, id, picture) {
  const scene = new SCENES[id][2](engine, id);
  await scene.begin(picture);
  return scene;
}
