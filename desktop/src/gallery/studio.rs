//! The thread that computes pictures, on the device of the window.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eframe::egui::Context;
use warploom::provider::OpenOptions;
use warploom::runtime::SyncMode;
use warploom::webgpu::{Provider, wgpu};
use warploom::{Error, Result, Runtime, Tensor};
use warploom_core::base::platform::panic_text;

use super::scenes::{Pointer, Scene, SceneName, Size, View};
use crate::notice::{Failure, Kind};
use crate::packs::Texts;

/// Time of the steps between two frames, so that the window keeps its rate.
const BUDGET: Duration = Duration::from_millis(9);
/// Maximum number of steps between two frames.
const MOST: u32 = 64;

/// A request of the window: compute a picture, and go on from its last state.
#[derive(Clone, Debug)]
pub struct Order {
    /// The picture.
    pub scene: SceneName,
    /// Its size; `None` is that of [`Size::of`].
    pub size: Option<Size>,
    /// Whether it begins again.
    pub reset: bool,
    /// Number of steps; `None` is what fits between two frames.
    pub steps: Option<u32>,
    /// What the pointer does.
    pub pointer: Pointer,
    /// The view of the Mandelbrot set.
    pub view: View,
    /// The picture that is filtered; `None` is the program's own.
    pub photo: Option<Arc<Path>>,
    /// Radius of the filter.
    pub radius: u32,
    /// Packs that the user changed.
    pub own: Arc<Vec<Texts>>,
}

/// A computed picture.
pub struct Frame {
    /// The picture.
    pub scene: SceneName,
    /// Its size.
    pub size: Size,
    /// The buffer with its data, and the offset of the data in it.
    pub buffer: (wgpu::Buffer, u64, u64),
    /// Keeps the buffer from being used again.
    pub keep: Tensor,
    /// Number of steps so far.
    pub steps: u64,
    /// Seconds of a step; `None` if nothing was computed.
    pub step_seconds: Option<f64>,
    /// Maximum number of iterations of the Mandelbrot set.
    pub limit: u32,
}

/// The window's end of the thread.
pub struct Studio {
    orders: Option<Sender<Order>>,
    frames: Receiver<std::result::Result<Frame, Failure>>,
    thread: Option<JoinHandle<()>>,
    /// Whether an order is not done yet.
    waiting: bool,
}

impl Studio {
    /// Starts the thread on the device that draws the window.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(gpu: wgpu::Device, queue: wgpu::Queue, ctx: Context) -> std::io::Result<Studio> {
        let (orders, received) = channel();
        let (sent, frames) = channel();
        let work = move || {
            let mut room =
                Room { gpu, queue, runtime: None, scene: None, filter: None, per_frame: 1 };
            while let Ok(order) = received.recv() {
                // Of a pack that the user changed, anything may come.
                let frame = match catch_unwind(AssertUnwindSafe(|| room.compute(order))) {
                    Ok(frame) => frame.map_err(Failure::from),
                    Err(panic) => {
                        (room.scene, room.runtime) = (None, None);
                        Err(Failure::new(Kind::Stopped, panic_text(&*panic)))
                    }
                };
                if sent.send(frame).is_err() {
                    return;
                }
                ctx.request_repaint();
            }
        };
        let thread = std::thread::Builder::new().name("warploom pictures".into()).spawn(work)?;
        Ok(Studio { orders: Some(orders), frames, thread: Some(thread), waiting: false })
    }

    /// Returns whether an order is not done yet.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Asks for a picture, unless an order is not done yet. Returns whether it was asked for.
    pub fn order(&mut self, order: Order) -> bool {
        if self.waiting {
            return false;
        }
        if let Some(orders) = &self.orders {
            self.waiting = orders.send(order).is_ok();
        }
        self.waiting
    }

    /// Returns the next computed picture, if there is one.
    pub fn frame(&mut self) -> Option<std::result::Result<Frame, Failure>> {
        let frame = self.frames.try_recv().ok()?;
        self.waiting = false;
        Some(frame)
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Room {
    gpu: wgpu::Device,
    queue: wgpu::Queue,
    /// Opened with the first order, so that windows without pictures need none.
    runtime: Option<Runtime>,
    scene: Option<Scene>,
    /// The picture that was filtered last, and the radius.
    filter: Option<(Option<Arc<Path>>, u32)>,
    /// Steps that fit between two frames.
    per_frame: u32,
}

impl Room {
    fn compute(&mut self, order: Order) -> Result<Frame> {
        let runtime = match &self.runtime {
            Some(runtime) => runtime.clone(),
            None => {
                let options = OpenOptions::default();
                let device = Provider::from_device(self.gpu.clone(), self.queue.clone(), &options);
                let runtime = Runtime::on(device, SyncMode::Lazy, None)?;
                self.runtime.insert(runtime).clone()
            }
        };
        let profile = runtime.device().profile();
        let size = order.size.unwrap_or_else(|| Size::of(order.scene, profile));
        let same = |scene: &Scene| {
            scene.name() == order.scene && (scene.size() == size || order.scene == SceneName::Photo)
        };
        let filter = (order.photo.clone(), order.radius);
        let other = order.scene == SceneName::Photo && self.filter.as_ref() != Some(&filter);
        if order.reset || other || !self.scene.as_ref().is_some_and(same) {
            self.scene = None;
            self.per_frame = 1;
        }
        let scene = match &mut self.scene {
            Some(scene) => scene,
            None => {
                self.filter = Some(filter);
                self.scene.insert(Scene::new(&order, size, &runtime)?)
            }
        };
        let wanted = order.steps.unwrap_or(self.per_frame);
        let begin = Instant::now();
        let mut done = 0;
        for step in 0..wanted {
            // The pointer moved once.
            let moved = if step == 0 { order.pointer.moved } else { [0.0; 2] };
            if !scene.step(Pointer { moved, ..order.pointer }, order.view)? {
                break;
            }
            done += 1;
        }
        // Runs what has no step yet, such as the first state.
        scene.state().realize()?;
        runtime.flush()?;
        self.gpu
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|e| Error::device(e.to_string()))?;
        let took = begin.elapsed();
        if done > 0 && order.steps.is_none() {
            let fit = BUDGET.as_secs_f64() / took.as_secs_f64().max(1e-6) * f64::from(done);
            // Half of the way, since single times vary.
            let next = (fit + f64::from(self.per_frame)) / 2.0;
            self.per_frame = (next as u32).clamp(1, MOST);
        }
        let lost = || Error::device("the picture has no memory on the device of the window");
        let range = scene.state().buffer()?.ok_or_else(lost)?;
        let buffer = Provider::buffer_of(&**runtime.device(), range).ok_or_else(lost)?;
        Ok(Frame {
            scene: scene.name(),
            size: scene.size(),
            buffer: (buffer, range.offset, range.bytes),
            keep: scene.state().clone(),
            steps: scene.steps(),
            step_seconds: (done > 0).then(|| took.as_secs_f64() / f64::from(done)),
            limit: scene.limit(),
        })
    }
}
