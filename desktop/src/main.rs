//! The program `warploom-desktop`.

use std::process::ExitCode;
use std::time::Instant;

use eframe::egui::{IconData, ViewportBuilder};
use warploom_desktop::app::{App, Options};
use warploom_desktop::args::{Args, HELP};
use warploom_desktop::script::Script;
use warploom_desktop::{offscreen, window};

/// Size of the window at first, in points.
const SIZE: [f32; 2] = [1180.0, 780.0];

fn main() -> ExitCode {
    let started = Instant::now();
    let args = match Args::read(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if args.help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if args.version {
        println!("warploom-desktop {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match run(args, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args, started: Instant) -> Result<(), String> {
    let script = match (&args.script, &args.screenshot) {
        (None, None) => None,
        (file, screenshot) => {
            let read = |file: &std::path::PathBuf| {
                std::fs::read_to_string(file).map_err(|e| format!("{file:?}: {e}"))
            };
            let text = file.as_ref().map(read).transpose()?.unwrap_or_default();
            let name = |e| format!("{}: {e}", file.as_deref().unwrap_or("".as_ref()).display());
            Some(Script::read(&text, screenshot.clone()).map_err(name)?)
        }
    };
    let options = Options {
        model: args.model,
        device: args.device,
        folder: args.folder,
        started: Some(started),
        script,
        ..Options::default()
    };
    let failed = options.failed.clone();
    if args.offscreen {
        offscreen::run(options, SIZE)?;
        let failed = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        return failed.map_or(Ok(()), Err);
    }
    let viewport = ViewportBuilder::default()
        .with_title("warploom")
        .with_app_id("warploom")
        .with_icon(icon())
        .with_drag_and_drop(true)
        .with_inner_size(SIZE)
        .with_min_inner_size([480.0, 360.0]);
    let native = eframe::NativeOptions {
        viewport,
        wgpu_options: window::configuration(),
        ..eframe::NativeOptions::default()
    };
    let create = move |context: &eframe::CreationContext<'_>| {
        let graphics = context.wgpu_render_state.as_ref();
        Ok(Box::new(App::new(&context.egui_ctx, graphics, options)?) as Box<dyn eframe::App>)
    };
    eframe::run_native("warploom", native, Box::new(create))
        .map_err(|e| format!("no window can be opened: {e}"))?;
    let failed = failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    failed.map_or(Ok(()), Err)
}

/// Returns the icon of the browser page: threads across a warp, on the accent colour.
fn icon() -> IconData {
    const SIZE: u32 = 64;
    const GROUND: [f32; 3] = [61.0, 58.0, 240.0];
    let mut rgba = Vec::with_capacity((SIZE * SIZE * 4) as usize);
    for y in 0..SIZE {
        for x in 0..SIZE {
            let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
            // Distance to the rounded square, and to the threads.
            let corner = |at: f32| ((at - 32.0).abs() - 17.0).max(0.0);
            let outside = corner(x).hypot(corner(y)) - 15.0;
            let warp = [18.0, 32.0, 46.0].map(|at: f32| (x - at).abs()).into_iter();
            let warp = warp.fold(f32::MAX, f32::min).max((y - 32.0).abs() - 18.0);
            let wave = 6.0 * ((x - 12.0) / 13.3 * std::f32::consts::PI).sin();
            let weft = (y - 24.0 + wave).abs().min((y - 40.0 - wave).abs());
            let weft = weft.max((x - 32.0).abs() - 20.0);
            let cover = |distance: f32| (3.0 - distance).clamp(0.0, 1.0);
            let white = cover(weft).max(0.45 * cover(warp));
            rgba.extend(GROUND.map(|ground| (ground + (255.0 - ground) * white) as u8));
            rgba.push(((0.5 - outside).clamp(0.0, 1.0) * 255.0) as u8);
        }
    }
    IconData { rgba, width: SIZE, height: SIZE }
}
