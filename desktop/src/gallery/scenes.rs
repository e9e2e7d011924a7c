//! What the pictures show: each is one pack, or several, that run again and again on tensors.

use warploom::kernel::pack::Pack;
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::{Error, Result, Runtime, Tensor};

use super::photo::Photo;
use super::studio::Order;
use crate::packs::{self, PackText, Texts};

/// A picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SceneName {
    /// Conway's Game of Life.
    Life,
    /// A zoom into the Mandelbrot set.
    Mandelbrot,
    /// A fluid that can be stirred.
    Fluid,
    /// A flock.
    Boids,
    /// Bodies that attract each other.
    Bodies,
    /// A filter on a picture of the user.
    Photo,
}

impl SceneName {
    /// All pictures, in the order of the panel.
    pub const ALL: [SceneName; 6] = [
        SceneName::Life,
        SceneName::Mandelbrot,
        SceneName::Fluid,
        SceneName::Boids,
        SceneName::Bodies,
        SceneName::Photo,
    ];

    /// Returns its name in scripts.
    pub fn id(self) -> &'static str {
        match self {
            SceneName::Life => "life",
            SceneName::Mandelbrot => "mandelbrot",
            SceneName::Fluid => "fluid",
            SceneName::Boids => "boids",
            SceneName::Bodies => "bodies",
            SceneName::Photo => "photo",
        }
    }

    /// Returns its name in the window.
    pub fn title(self) -> &'static str {
        match self {
            SceneName::Life => "Game of Life",
            SceneName::Mandelbrot => "Mandelbrot set",
            SceneName::Fluid => "Fluid",
            SceneName::Boids => "Flock",
            SceneName::Bodies => "N-body",
            SceneName::Photo => "Your picture",
        }
    }

    /// Returns what the pointer does.
    pub fn hint(self) -> &'static str {
        match self {
            SceneName::Life => "Drag to revive cells.",
            SceneName::Mandelbrot => "Click to zoom there; the wheel zooms in and out.",
            SceneName::Fluid => "Drag to stir and dye it.",
            SceneName::Boids => "Every bird looks at the birds around it.",
            SceneName::Bodies => "Every body attracts every other one.",
            SceneName::Photo => "Drop a PNG or JPEG on the window; each step paints over it.",
        }
    }

    /// Returns the packs that it runs.
    pub fn packs(self) -> &'static [PackText] {
        const FLUID: [PackText; 4] =
            [packs::ADVECT, packs::DIVERGENCE, packs::PRESSURE, packs::PROJECT];
        const FLOCK: [PackText; 4] =
            [packs::BOIDS, packs::FLOCK_COUNT, packs::FLOCK_ENDS, packs::FLOCK_SORT];
        match self {
            SceneName::Life => &[packs::LIFE],
            SceneName::Mandelbrot => &[packs::MANDELBROT],
            SceneName::Fluid => &FLUID,
            SceneName::Boids => &FLOCK,
            SceneName::Bodies => &[packs::NBODY],
            SceneName::Photo => &[packs::PAINT],
        }
    }

    /// Returns the first picture that a pack belongs to.
    pub fn of_pack(name: &str) -> Option<SceneName> {
        let has = |scene: &SceneName| scene.packs().iter().any(|pack| pack.name == name);
        SceneName::ALL.into_iter().find(has)
    }

    /// Returns what a step counts: the unit, and how many of it a step computes.
    pub fn work(self, size: Size) -> (&'static str, f64) {
        let cells = f64::from(size.width) * f64::from(size.height);
        match self {
            SceneName::Life => ("cells", cells),
            SceneName::Mandelbrot => ("pixels", cells),
            SceneName::Fluid => ("cells", cells),
            SceneName::Boids => ("birds", cells),
            SceneName::Bodies => ("pairs of bodies", f64::from(size.width) * f64::from(size.width)),
            SceneName::Photo => ("pixels", cells),
        }
    }

    /// Returns the bytes that the kernels of a step read and write at least, each tensor of a kernel
    /// once; `None` if arithmetic and not memory takes its time.
    pub fn traffic(self, size: Size) -> Option<f64> {
        let of_a_cell = match self {
            SceneName::Life => 4 + 4,
            // Colours and velocity are 16 bytes, divergence and pressure 4.
            SceneName::Fluid => (16 + 16) + (16 + 4) + ITERATIONS * (4 + 4 + 4) + (16 + 4 + 16),
            _ => return None,
        };
        Some(f64::from(size.width) * f64::from(size.height) * of_a_cell as f64)
    }
}

/// Cells of a picture; of points, `width` is their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns, or points.
    pub width: u32,
    /// Rows; 1 for points.
    pub height: u32,
}

impl Size {
    /// Returns the size of a picture that a device computes at the rate of a display.
    pub fn of(scene: SceneName, profile: &DeviceProfile) -> Size {
        let strong = profile.kind == DeviceKind::Discrete;
        let weak = matches!(profile.kind, DeviceKind::Software | DeviceKind::Cpu);
        let pick = |strong_size, weak_size, size| match (strong, weak) {
            (true, _) => strong_size,
            (_, true) => weak_size,
            _ => size,
        };
        let (width, height) = match scene {
            SceneName::Life => pick((2048, 1536), (320, 240), (1024, 768)),
            SceneName::Mandelbrot => pick((1920, 1440), (320, 240), (960, 720)),
            SceneName::Fluid => pick((1024, 1024), (160, 120), (512, 384)),
            SceneName::Boids => pick((1_000_000, 1), (2_048, 1), (131_072, 1)),
            SceneName::Bodies => pick((32_768, 1), (768, 1), (6_144, 1)),
            // That of the picture.
            SceneName::Photo => (0, 0),
        };
        Size { width, height }
    }
}

/// What the pointer does in a picture, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pointer {
    /// Its place.
    pub place: [f32; 2],
    /// Its movement since the frame before.
    pub moved: [f32; 2],
    /// Whether it is pressed.
    pub pressed: bool,
}

/// The part of the plane that the Mandelbrot picture shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The middle.
    pub middle: [f64; 2],
    /// Height in the plane.
    pub span: f64,
    /// Maximum number of iterations.
    pub limit: u32,
}

impl Default for View {
    fn default() -> View {
        View { middle: [-0.6, 0.0], span: 2.6, limit: 256 }
    }
}

/// Smallest span of a view: below it neighbouring pixels have equal coordinates in f64.
pub const DEEPEST: f64 = 1e-13;

impl View {
    /// Returns the point of the plane at a place of the picture, each from 0 to 1.
    pub fn at(&self, place: [f64; 2], aspect: f64) -> [f64; 2] {
        [
            self.middle[0] + (place[0] - 0.5) * self.span * aspect,
            self.middle[1] + (place[1] - 0.5) * self.span,
        ]
    }

    /// Zooms by a factor, so that a point keeps its place.
    pub fn zoom(&mut self, factor: f64, point: [f64; 2]) {
        let span = (self.span * factor).clamp(DEEPEST, 4.0);
        let factor = span / self.span;
        for (middle, point) in self.middle.iter_mut().zip(point) {
            *middle = point + (*middle - point) * factor;
        }
        self.span = span;
        // Deeper, points need longer to escape. In coarse steps: another length of the orbit is
        // another plan.
        let depth = (2.6 / span).log2().max(0.0);
        self.limit = (256.0 + 70.0 * depth) as u32 / 256 * 256;
    }
}

/// Returns the orbit of a point, at most `limit` steps and until it escapes, from 0 on.
fn orbit(point: [f64; 2], limit: u32) -> Vec<f32> {
    let (mut x, mut y) = (0.0_f64, 0.0_f64);
    let mut all = Vec::with_capacity(2 * limit as usize + 2);
    // The length decides the plan, so it is always the same for a limit.
    for _ in 0..=limit {
        all.extend([x as f32, y as f32]);
        if x * x + y * y < 1e6 {
            (x, y) = (x * x - y * y + point[0], 2.0 * x * y + point[1]);
        }
    }
    all
}

/// A picture and its state on the device.
pub struct Scene {
    name: SceneName,
    size: Size,
    packs: Vec<Pack>,
    runtime: Runtime,
    state: Tensor,
    /// The pressure of a fluid, which the next step begins with.
    pressure: Option<Tensor>,
    /// The view that was computed.
    viewed: Option<View>,
    /// Radius of the filter.
    radius: u32,
    steps: u64,
}

/// Jacobi iterations of a step of a fluid.
const ITERATIONS: usize = 24;
/// Average birds of a cell.
const BIRDS_PER_CELL: f64 = 12.0;
/// How far birds see in a flock whose steps are whole, in a sky of size 2.
const BIRDS_SIGHT: f64 = 0.11;
/// Times that a picture is painted over; later ones change little.
const LAYERS: u64 = 8;

impl Scene {
    /// Creates the picture of an order in its first state.
    ///
    /// # Errors
    /// Those of the device, of changed packs, and of reading the user's picture.
    pub fn new(order: &Order, size: Size, runtime: &Runtime) -> Result<Scene> {
        let name = order.scene;
        let own = |pack: &PackText| order.own.iter().find(|texts| texts.name == pack.name);
        let load = |pack: &PackText| own(pack).map_or_else(|| pack.load(), Texts::load);
        let packs = name.packs().iter().map(load).collect::<Result<_>>()?;
        let (size, state, pressure) = match name {
            SceneName::Photo => {
                let photo = Photo::read(order.photo.as_deref(), runtime.device().profile())?;
                let shape = [photo.size.height as usize, photo.size.width as usize, 4];
                (photo.size, Tensor::from_vec(runtime, photo.pixels, shape), None)
            }
            _ => {
                let (state, pressure) = begin(name, size, runtime);
                (size, state, pressure)
            }
        };
        let (runtime, radius) = (runtime.clone(), order.radius);
        Ok(Scene { name, size, packs, runtime, state, pressure, viewed: None, radius, steps: 0 })
    }

    /// Returns which picture it is.
    pub fn name(&self) -> SceneName {
        self.name
    }

    /// Returns its size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns what is drawn.
    pub fn state(&self) -> &Tensor {
        &self.state
    }

    /// Returns the maximum number of iterations of the view that was computed.
    pub fn limit(&self) -> u32 {
        self.viewed.map_or(0, |view| view.limit)
    }

    fn run(&self, pack: usize, operands: &[&Tensor], values: &[(&str, f64)]) -> Result<Tensor> {
        let results = Tensor::custom(&self.packs[pack], operands, values);
        let result = results.into_iter().next();
        result.ok_or_else(|| Error::invalid(format!("{} has no result", self.packs[pack].name())))
    }

    /// Computes the next step. Returns false if nothing changes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn step(&mut self, pointer: Pointer, view: View) -> Result<bool> {
        let next = match self.name {
            SceneName::Life => {
                let radius = (self.size.width as f32 / 90.0).max(2.0);
                let brush =
                    [pointer.place[0], pointer.place[1], radius, f32::from(pointer.pressed)];
                let brush = Tensor::from_slice(&self.runtime, &brush, [4]);
                self.run(0, &[&self.state, &brush], &[])?
            }
            SceneName::Mandelbrot => {
                if self.viewed == Some(view) {
                    return Ok(false);
                }
                self.viewed = Some(view);
                let orbit = orbit(view.middle, view.limit);
                let steps = orbit.len() / 2;
                let orbit = Tensor::from_vec(&self.runtime, orbit, [steps, 2]);
                let numbers = [view.span as f32, view.limit as f32];
                let numbers = Tensor::from_slice(&self.runtime, &numbers, [2]);
                let (width, height) = (f64::from(self.size.width), f64::from(self.size.height));
                self.run(0, &[&orbit, &numbers], &[("width", width), ("height", height)])?
            }
            SceneName::Fluid => self.fluid(pointer)?,
            SceneName::Boids => self.flock()?,
            SceneName::Bodies => self.run(0, &[&self.state], &[])?,
            SceneName::Photo if self.steps == LAYERS => return Ok(false),
            SceneName::Photo => {
                let radius = f64::from(self.radius);
                self.run(0, &[&self.state], &[("radius", radius)])?
            }
        };
        next.realize()?;
        self.state = next;
        self.steps += 1;
        Ok(true)
    }

    /// Sorts the birds by the cells of a grid, so that each looks at nine cells alone.
    fn flock(&self) -> Result<Tensor> {
        let side = f64::from(side_of_cells(self.size.width));
        // In smaller cells steps are shorter, so that birds meet those around them for a while.
        let dt = 0.016 * (BIRDS_SIGHT * side / 2.0).recip().clamp(0.15, 1.0);
        let all = Tensor::custom(&self.packs[1], &[&self.state], &[("side", side)]);
        let [counts, ranks] = all.as_slice() else {
            return Err(Error::invalid("flock-count has two results"));
        };
        let ends = self.run(2, &[counts], &[])?;
        let sorted = self.run(3, &[&self.state, ranks, &ends], &[])?;
        self.run(0, &[&sorted, &ends], &[("dt", dt)])
    }

    fn fluid(&mut self, pointer: Pointer) -> Result<Tensor> {
        let (width, height) = (self.size.width as f32, self.size.height as f32);
        let radius = width / 26.0;
        let stir = match pointer.pressed {
            true => {
                let [x, y] = pointer.moved.map(|moved| moved.clamp(-8.0, 8.0) * 0.5);
                [pointer.place[0], pointer.place[1], x, y, radius, 0.5]
            }
            // Two jets that turn slowly, one of each dye.
            false => {
                let turn = self.steps as f32 * 0.013;
                let side = if self.steps.is_multiple_of(2) { 1.0 } else { -1.0 };
                let place = [width * (0.5 - 0.22 * side), height * 0.5];
                let push = [side * turn.cos() * 0.9, side * turn.sin() * 0.9];
                [place[0], place[1], push[0], push[1], radius, 0.22 * side]
            }
        };
        let stir = Tensor::from_slice(&self.runtime, &stir, [6]);
        let moved = self.run(0, &[&self.state, &stir], &[])?;
        let divergence = self.run(1, &[&moved], &[])?;
        let shape = [self.size.height as usize, self.size.width as usize];
        let before = self.pressure.take();
        let mut pressure = before.unwrap_or_else(|| Tensor::zeros(&self.runtime, shape));
        for _ in 0..ITERATIONS {
            pressure = self.run(2, &[&pressure, &divergence], &[])?;
        }
        let projected = self.run(3, &[&moved, &pressure], &[])?;
        Tensor::eval(&[&projected, &pressure])?;
        self.pressure = Some(pressure);
        Ok(projected)
    }
}

/// Returns the number of columns and rows of the grid over a number of birds.
fn side_of_cells(birds: u32) -> u32 {
    ((f64::from(birds) / BIRDS_PER_CELL).sqrt() as u32).clamp(16, 512)
}

/// Returns the first state of a picture, and the first pressure of a fluid.
fn begin(name: SceneName, size: Size, runtime: &Runtime) -> (Tensor, Option<Tensor>) {
    let shape = [size.height as usize, size.width as usize];
    let cells = shape[0] * shape[1];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    match name {
        SceneName::Life => {
            let cell = |_| if random.unit() < 0.28 { 255_u32 } else { 0 };
            (Tensor::from_vec(runtime, (0..cells).map(cell).collect(), shape), None)
        }
        SceneName::Mandelbrot | SceneName::Photo => (Tensor::zeros(runtime, shape), None),
        SceneName::Fluid => {
            let field = Tensor::zeros(runtime, [shape[0], shape[1], 4]);
            (field, Some(Tensor::zeros(runtime, shape)))
        }
        SceneName::Boids => {
            let mut birds = Vec::with_capacity(cells * 4);
            for _ in 0..cells {
                let turn = random.unit() * std::f32::consts::TAU;
                birds.extend([random.unit() * 2.0 - 1.0, random.unit() * 2.0 - 1.0]);
                birds.extend([turn.cos() * 0.3, turn.sin() * 0.3]);
            }
            (Tensor::from_vec(runtime, birds, [cells, 4]), None)
        }
        SceneName::Bodies => {
            // A disc that turns, with more bodies in the middle.
            let mut bodies = Vec::with_capacity(cells * 4);
            for _ in 0..cells {
                let (turn, part) = (random.unit() * std::f32::consts::TAU, random.unit());
                let radius = 0.06 + 0.74 * part;
                let speed = (part / radius).sqrt() * 0.92;
                bodies.extend([turn.cos() * radius, turn.sin() * radius]);
                bodies.extend([-turn.sin() * speed, turn.cos() * speed]);
            }
            (Tensor::from_vec(runtime, bodies, [cells, 4]), None)
        }
    }
}

/// Random numbers, the same at each start.
struct Random(u64);

impl Random {
    /// Returns the next number from 0 to 1.
    fn unit(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zoom_keeps_the_point_in_its_place() {
        let mut view = View::default();
        let (place, aspect) = ([0.8, 0.3], 4.0 / 3.0);
        let point = view.at(place, aspect);
        for _ in 0..200 {
            view.zoom(0.9, point);
        }
        let now = view.at(place, aspect);
        assert!((now[0] - point[0]).abs() < view.span * 1e-2, "{now:?} {point:?}");
        assert!(view.limit > 256 && view.span < 1e-8);
        view.zoom(1e-9, point);
        assert_eq!(view.span, DEEPEST);
    }

    #[test]
    fn an_orbit_has_the_length_of_its_limit() {
        let inside = orbit([-1.0, 0.0], 10);
        assert_eq!(inside[..8], [0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -1.0, 0.0]);
        let outside = orbit([2.0, 2.0], 50);
        assert_eq!(outside.len(), 102);
        assert!(outside.iter().all(|value| value.is_finite()));
    }
}
