//! Draws a picture from the buffer in which it was computed.

use eframe::egui::{Color32, PaintCallback, PaintCallbackInfo, Rect, Rgba};
use eframe::egui_wgpu::{Callback, CallbackResources, CallbackTrait};
use warploom::Tensor;
use warploom::webgpu::wgpu;

use super::scenes::SceneName;
use super::studio::Frame;

/// Pipelines that draw pictures, on the device of the window.
pub(super) struct Painter {
    gpu: wgpu::Device,
    queue: wgpu::Queue,
    layout: wgpu::BindGroupLayout,
    life: wgpu::RenderPipeline,
    escape: wgpu::RenderPipeline,
    fluid: wgpu::RenderPipeline,
    photo: wgpu::RenderPipeline,
    bodies: wgpu::RenderPipeline,
    birds: wgpu::RenderPipeline,
}

/// Bytes of the struct `View` of the shader.
const VIEW: u64 = 48;

impl Painter {
    /// Creates the pipelines for a window with this format.
    pub(super) fn new(
        gpu: &wgpu::Device,
        queue: &wgpu::Queue,
        format: wgpu::TextureFormat,
    ) -> Painter {
        let module = gpu.create_shader_module(wgpu::include_wgsl!("picture.wgsl"));
        let stages = wgpu::ShaderStages::VERTEX_FRAGMENT;
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: stages,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let layout = gpu.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("picture"),
            entries: &[
                entry(0, wgpu::BufferBindingType::Uniform),
                entry(1, wgpu::BufferBindingType::Storage { read_only: true }),
            ],
        });
        let layouts = gpu.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some("picture"),
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = |vertex: &str, fragment: &str, strip: bool, blend| {
            gpu.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
                label: Some(fragment),
                layout: Some(&layouts),
                vertex: wgpu::VertexState {
                    module: &module,
                    entry_point: Some(vertex),
                    compilation_options: Default::default(),
                    buffers: &[],
                },
                primitive: wgpu::PrimitiveState {
                    topology: match strip {
                        true => wgpu::PrimitiveTopology::TriangleStrip,
                        false => wgpu::PrimitiveTopology::TriangleList,
                    },
                    ..Default::default()
                },
                depth_stencil: None,
                multisample: Default::default(),
                fragment: Some(wgpu::FragmentState {
                    module: &module,
                    entry_point: Some(fragment),
                    compilation_options: Default::default(),
                    targets: &[Some(wgpu::ColorTargetState {
                        format,
                        blend,
                        write_mask: wgpu::ColorWrites::ALL,
                    })],
                }),
                multiview_mask: None,
                cache: None,
            })
        };
        // Where bodies overlap, it is brighter.
        let add = wgpu::BlendComponent {
            src_factor: wgpu::BlendFactor::One,
            dst_factor: wgpu::BlendFactor::One,
            operation: wgpu::BlendOperation::Add,
        };
        let add = Some(wgpu::BlendState { color: add, alpha: add });
        Painter {
            life: pipeline("whole", "life", false, None),
            escape: pipeline("whole", "escape", false, None),
            fluid: pipeline("whole", "fluid", false, None),
            photo: pipeline("whole", "photo", false, None),
            bodies: pipeline("point", "body", true, add),
            birds: pipeline("point", "bird", true, add),
            gpu: gpu.clone(),
            queue: queue.clone(),
            layout,
        }
    }

    /// Returns the shape that draws a computed picture in a rectangle, of which a point has this
    /// many pixels.
    pub(super) fn shape(
        &self,
        frame: &Frame,
        rect: Rect,
        pixels: f32,
        ground: Color32,
        ink: Color32,
    ) -> PaintCallback {
        let points = matches!(frame.scene, SceneName::Boids | SceneName::Bodies);
        let size = (rect.size() * pixels).round();
        // Of points, the shader needs the pixels, and the size of a point.
        let (width, height, limit) = match points {
            true => (size.x as u32, size.y as u32, 1.9 * pixels.max(1.0)),
            false => (frame.size.width, frame.size.height, frame.limit as f32),
        };
        let mut view = Vec::with_capacity(VIEW as usize);
        view.extend(width.to_le_bytes());
        view.extend(height.to_le_bytes());
        view.extend(limit.to_le_bytes());
        view.extend((rect.height() / rect.width().max(1.0)).to_le_bytes());
        // Points that cover the picture several times are faint: where they overlap, it is brighter.
        let covered = match points {
            true => frame.size.width as f32 * limit * limit / (size.x * size.y).max(1.0),
            false => 0.0,
        };
        let light = (0.5 / covered).clamp(1.0 / 64.0, 1.0);
        for (color, light) in [(ground, 1.0), (ink, light)] {
            // The window has no linear colours.
            let color = Rgba::from_rgba_unmultiplied(
                f32::from(color.r()) / 255.0,
                f32::from(color.g()) / 255.0,
                f32::from(color.b()) / 255.0,
                1.0,
            );
            let color = [color.r(), color.g(), color.b(), light];
            color.into_iter().for_each(|part| view.extend(part.to_le_bytes()));
        }
        let uniform = self.gpu.create_buffer(&wgpu::BufferDescriptor {
            label: Some("view of a picture"),
            size: VIEW,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&uniform, 0, &view);
        let (buffer, offset, bytes) = &frame.buffer;
        let group = self.gpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("picture"),
            layout: &self.layout,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() },
                wgpu::BindGroupEntry {
                    binding: 1,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer,
                        offset: *offset,
                        size: std::num::NonZeroU64::new(*bytes),
                    }),
                },
            ],
        });
        let (pipeline, vertices, instances) = match frame.scene {
            SceneName::Life => (&self.life, 3, 1),
            SceneName::Mandelbrot => (&self.escape, 3, 1),
            SceneName::Fluid => (&self.fluid, 3, 1),
            SceneName::Photo => (&self.photo, 3, 1),
            SceneName::Boids => (&self.birds, 4, frame.size.width),
            SceneName::Bodies => (&self.bodies, 4, frame.size.width),
        };
        let drawn = Drawn {
            pipeline: pipeline.clone(),
            group,
            vertices,
            instances,
            _keep: frame.keep.clone(),
        };
        Callback::new_paint_callback(rect, drawn)
    }
}

/// A picture in a frame of the window.
struct Drawn {
    pipeline: wgpu::RenderPipeline,
    group: wgpu::BindGroup,
    vertices: u32,
    instances: u32,
    /// Keeps the memory until the frame has been submitted.
    _keep: Tensor,
}

impl CallbackTrait for Drawn {
    fn paint(
        &self,
        _: PaintCallbackInfo,
        pass: &mut wgpu::RenderPass<'static>,
        _: &CallbackResources,
    ) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.draw(0..self.vertices, 0..self.instances);
    }
}
