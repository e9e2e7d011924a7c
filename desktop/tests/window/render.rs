//! Draws the frames of a harness on the device of a window, without a screen.

use eframe::egui::{Context, FullOutput, TexturesDelta};
use eframe::egui_wgpu::{RenderState, RendererOptions, ScreenDescriptor, WgpuConfiguration};
use egui_kittest::TestRenderer;
use warploom::webgpu::wgpu;
use warploom_core::base::platform::block_on;
use warploom_desktop::window;

/// Opens the device of a window that has no surface.
pub(crate) fn state() -> RenderState {
    let setup = window::setup();
    let instance = block_on(setup.new_instance());
    let configuration = WgpuConfiguration { wgpu_setup: setup, ..WgpuConfiguration::default() };
    let options = RendererOptions::PREDICTABLE;
    block_on(RenderState::create(&configuration, &instance, None, options)).unwrap()
}

/// Gives the textures of each frame to the renderer.
pub(crate) struct Textures(pub(crate) RenderState);

impl TestRenderer for Textures {
    fn handle_delta(&mut self, delta: &mut TexturesDelta) {
        let mut renderer = self.0.renderer.write();
        for (id, images) in delta.set.drain() {
            for image in images {
                renderer.update_texture(&self.0.device, &self.0.queue, id, &image);
            }
        }
        for id in delta.free.drain() {
            renderer.free_texture(&id);
        }
    }
}

/// Draws a frame.
pub(crate) fn picture(state: &RenderState, ctx: &Context, output: &FullOutput) -> image::RgbaImage {
    let (device, queue) = (&state.device, &state.queue);
    let size = ctx.content_rect().size() * ctx.pixels_per_point();
    let (width, height) = (size.x.round() as u32, size.y.round() as u32);
    let screen = ScreenDescriptor {
        pixels_per_point: ctx.pixels_per_point(),
        size_in_pixels: [width, height],
    };
    let shapes = ctx.tessellate(output.shapes.clone(), ctx.pixels_per_point());
    let extent = wgpu::Extent3d { width, height, depth_or_array_layers: 1 };
    let texture = device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: extent,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: state.target_format,
        usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
        view_formats: &[],
    });
    let row = (width * 4).next_multiple_of(256);
    let read = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: u64::from(row) * u64::from(height),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut renderer = state.renderer.write();
    let before = renderer.update_buffers(device, queue, &mut encoder, &shapes, &screen);
    let view = texture.create_view(&Default::default());
    let mut pass = encoder
        .begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                resolve_target: None,
                ops: wgpu::Operations {
                    load: wgpu::LoadOp::Clear(wgpu::Color::BLACK),
                    store: wgpu::StoreOp::Store,
                },
                depth_slice: None,
            })],
            ..Default::default()
        })
        .forget_lifetime();
    renderer.render(&mut pass, &shapes, &screen);
    drop(pass);
    encoder.copy_texture_to_buffer(
        texture.as_image_copy(),
        wgpu::TexelCopyBufferInfo {
            buffer: &read,
            layout: wgpu::TexelCopyBufferLayout {
                offset: 0,
                bytes_per_row: Some(row),
                rows_per_image: None,
            },
        },
        extent,
    );
    queue.submit(before.into_iter().chain([encoder.finish()]));
    read.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let bytes = read.get_mapped_range(..).unwrap();
    let rows = bytes.chunks(row as usize).flat_map(|row| &row[..width as usize * 4]);
    image::RgbaImage::from_raw(width, height, rows.copied().collect()).unwrap()
}
