//! The program without a screen: frames are drawn into a texture, at the rate of a display.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use eframe::egui::{ColorImage, Context, FullOutput, Pos2, RawInput, TexturesDelta};
use eframe::egui::{Rect, Ui, Vec2, ViewportCommand, ViewportId};
use eframe::egui_wgpu::{RenderState, RendererOptions, ScreenDescriptor, WgpuConfiguration};
use warploom::webgpu::wgpu;
use warploom_core::base::platform::block_on;

use crate::app::{App, Options};
use crate::window;

/// Time of a frame of a display with 60 frames a second.
const FRAME: Duration = Duration::from_micros(16_667);
/// Longest time between two frames.
const IDLE: Duration = Duration::from_millis(250);

/// Opens the device of a window that has no surface.
///
/// # Errors
/// If there is no graphics adapter, or its device does not open.
pub fn graphics() -> Result<RenderState, String> {
    let setup = window::setup();
    let instance = block_on(setup.new_instance());
    let configuration = WgpuConfiguration { wgpu_setup: setup, ..WgpuConfiguration::default() };
    let options = RendererOptions::PREDICTABLE;
    block_on(RenderState::create(&configuration, &instance, None, options))
        .map_err(|e| format!("no graphics device can be opened: {e}"))
}

/// Runs the program until a script closes it, with a window of a size in points.
///
/// # Errors
/// Those of [`graphics`] and of [`App::new`], and if a frame cannot be drawn.
pub fn run(options: Options, size: [f32; 2]) -> Result<(), String> {
    let graphics = graphics()?;
    let ctx = Context::default();
    let (wake, woken) = sync_channel(1);
    ctx.set_request_repaint_callback(move |_| {
        // A full channel holds a request already.
        let _ = wake.try_send(());
    });
    let mut app = App::new(&ctx, Some(&graphics), options).map_err(|e| e.to_string())?;
    let mut size = Vec2::from(size);
    let start = Instant::now();
    loop {
        let begin = Instant::now();
        let input = RawInput {
            screen_rect: Some(Rect::from_min_size(Pos2::ZERO, size)),
            time: Some((begin - start).as_secs_f64()),
            focused: true,
            ..RawInput::default()
        };
        let mut output = ctx.run_ui(input, |ui: &mut Ui| {
            app.prepare(ui.ctx());
            app.draw(ui);
        });
        let root = output.viewport_output.remove(&ViewportId::ROOT);
        let (commands, delay) =
            root.map_or((Vec::new(), IDLE), |root| (root.commands, root.repaint_delay));
        let mut textures = std::mem::take(&mut output.textures_delta);
        set(&graphics, &mut textures);
        let frame = Frame::draw(&graphics, &ctx, &output)?;
        free(&graphics, &mut textures);
        let mut is_closed = false;
        for command in commands {
            match command {
                ViewportCommand::Close => is_closed = true,
                ViewportCommand::InnerSize(wanted) => size = wanted,
                ViewportCommand::Screenshot(callback) => {
                    callback.complete(Arc::new(frame.read(&graphics)?));
                }
                _ => {}
            }
        }
        if is_closed {
            eframe::App::on_exit(&mut app);
            return Ok(());
        }
        // As long as a display would show it; then until something is to be drawn.
        std::thread::sleep(FRAME.saturating_sub(begin.elapsed()));
        match woken.recv_timeout(delay.min(IDLE)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(delay.min(IDLE)),
        }
    }
}

/// Gives new and changed textures to the renderer, before a frame is drawn.
pub fn set(graphics: &RenderState, textures: &mut TexturesDelta) {
    let mut renderer = graphics.renderer.write();
    for (id, images) in textures.set.drain() {
        for image in images {
            renderer.update_texture(&graphics.device, &graphics.queue, id, &image);
        }
    }
}

/// Frees textures that no later frame uses.
pub fn free(graphics: &RenderState, textures: &mut TexturesDelta) {
    let mut renderer = graphics.renderer.write();
    for id in textures.free.drain() {
        renderer.free_texture(&id);
    }
}

/// A drawn frame.
pub struct Frame {
    texture: wgpu::Texture,
}

impl Frame {
    /// Draws a frame, and waits until the device has drawn it.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn draw(
        graphics: &RenderState,
        ctx: &Context,
        output: &FullOutput,
    ) -> Result<Frame, String> {
        let (device, queue) = (&graphics.device, &graphics.queue);
        let size = (ctx.content_rect().size() * ctx.pixels_per_point()).round();
        let (width, height) = (size.x.max(1.0) as u32, size.y.max(1.0) as u32);
        let screen = ScreenDescriptor {
            pixels_per_point: ctx.pixels_per_point(),
            size_in_pixels: [width, height],
        };
        let shapes = ctx.tessellate(output.shapes.clone(), ctx.pixels_per_point());
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("frame"),
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: graphics.target_format,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let [r, g, b, a] = ctx.global_style().visuals.panel_fill.to_normalized_gamma_f32();
        let [r, g, b, a] = [r, g, b, a].map(f64::from);
        let mut encoder = device.create_command_encoder(&Default::default());
        let mut renderer = graphics.renderer.write();
        let before = renderer.update_buffers(device, queue, &mut encoder, &shapes, &screen);
        let view = texture.create_view(&Default::default());
        let mut pass = encoder
            .begin_render_pass(&wgpu::RenderPassDescriptor {
                color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                    view: &view,
                    resolve_target: None,
                    ops: wgpu::Operations {
                        load: wgpu::LoadOp::Clear(wgpu::Color { r, g, b, a }),
                        store: wgpu::StoreOp::Store,
                    },
                    depth_slice: None,
                })],
                ..Default::default()
            })
            .forget_lifetime();
        renderer.render(&mut pass, &shapes, &screen);
        drop(pass);
        drop(renderer);
        queue.submit(before.into_iter().chain([encoder.finish()]));
        wait(device)?;
        Ok(Frame { texture })
    }

    /// Returns the pixels.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn read(&self, graphics: &RenderState) -> Result<ColorImage, String> {
        let (width, height) = (self.texture.width(), self.texture.height());
        let row = (width * 4).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
        let read = graphics.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("pixels of a frame"),
            size: u64::from(row) * u64::from(height),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = graphics.device.create_command_encoder(&Default::default());
        encoder.copy_texture_to_buffer(
            self.texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo {
                buffer: &read,
                layout: wgpu::TexelCopyBufferLayout {
                    offset: 0,
                    bytes_per_row: Some(row),
                    rows_per_image: None,
                },
            },
            self.texture.size(),
        );
        graphics.queue.submit([encoder.finish()]);
        read.map_async(wgpu::MapMode::Read, .., |_| {});
        wait(&graphics.device)?;
        let bytes = read.get_mapped_range(..).map_err(|e| format!("no picture: {e}"))?;
        let rows = bytes.chunks(row as usize).flat_map(|row| &row[..width as usize * 4]);
        let rgba: Vec<u8> = rows.copied().collect();
        Ok(ColorImage::from_rgba_premultiplied([width as usize, height as usize], &rgba))
    }
}

fn wait(device: &wgpu::Device) -> Result<(), String> {
    let polled = device.poll(wgpu::PollType::wait_indefinitely());
    polled.map(|_| ()).map_err(|e| format!("the device of the window: {e}"))
}
