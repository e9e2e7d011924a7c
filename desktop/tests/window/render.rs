//! Draws the frames of a harness on the device of a window, without a screen.

use eframe::egui::{Context, FullOutput, TexturesDelta};
use eframe::egui_wgpu::RenderState;
use egui_kittest::TestRenderer;
use warploom_desktop::offscreen::{Frame, free, graphics, set};

/// Opens the device of a window that has no surface.
pub(crate) fn state() -> RenderState {
    graphics().unwrap()
}

/// Gives the textures of each frame to the renderer.
pub(crate) struct Textures(pub(crate) RenderState);

impl TestRenderer for Textures {
    fn handle_delta(&mut self, delta: &mut TexturesDelta) {
        set(&self.0, delta);
        free(&self.0, delta);
    }
}

/// Draws a frame.
pub(crate) fn picture(state: &RenderState, ctx: &Context, output: &FullOutput) -> image::RgbaImage {
    let pixels = Frame::draw(state, ctx, output).unwrap().read(state).unwrap();
    let [width, height] = pixels.size.map(|size| size as u32);
    let rgba = pixels.pixels.iter().flat_map(|pixel| pixel.to_array()).collect();
    image::RgbaImage::from_raw(width, height, rgba).unwrap()
}
