//! Models of Hugging Face, from a hub of the test.

use std::io::BufRead;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::*;
use warploom_models::download::HubOptions;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with the embedded model, as `org/tiny`.
struct HubOfTests {
    address: String,
    /// Whether it sends only the first half of a file, and then waits.
    stalls: Arc<AtomicBool>,
    /// Where the last requested file began.
    from: Arc<AtomicUsize>,
}

impl HubOfTests {
    fn start() -> HubOfTests {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let model = Arc::new(std::fs::read(embedded()).unwrap());
        let stalls = Arc::new(AtomicBool::new(false));
        let from = Arc::new(AtomicUsize::new(0));
        let (stalling, begun) = (stalls.clone(), from.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (model, stalling, begun) = (model.clone(), stalling.clone(), begun.clone());
                std::thread::spawn(move || serve(stream, &model, &stalling, &begun));
            }
        });
        HubOfTests { address, stalls, from }
    }

    fn options(&self, folder: &Path) -> HubOptions {
        HubOptions {
            endpoint: self.address.clone(),
            cache: folder.join("cache"),
            token: None,
            offline: false,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(20),
            attempts: 2,
            backoff: Duration::from_millis(1),
        }
    }
}

fn serve(stream: TcpStream, model: &[u8], stalls: &AtomicBool, begun: &AtomicUsize) {
    let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut from) = (String::new(), 0);
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        let header = line.lines().last().unwrap_or_default().to_ascii_lowercase();
        let range = header.strip_prefix("range: bytes=").and_then(|rest| rest.strip_suffix('-'));
        from = range.and_then(|range| range.parse().ok()).unwrap_or(from);
    }
    let mut stream = stream;
    // A client may close early.
    let mut send = |bytes: &[u8]| {
        let _ = stream.write_all(bytes);
    };
    if path.starts_with("/api/models/org/tiny/") {
        // Only a file with a checksum is resumed.
        let digest = Sha256::digest(model);
        let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "{{\"sha\": \"{COMMIT}\", \"siblings\": [{{\"rfilename\": \"tiny-Q4_K_M.gguf\", \
             \"lfs\": {{\"sha256\": \"{}\", \"size\": {}}}}}]}}",
            sha256,
            model.len()
        );
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
        return send(format!("{head}{text}").as_bytes());
    }
    if !path.ends_with("tiny-Q4_K_M.gguf") {
        return send(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    }
    begun.store(from, Ordering::Relaxed);
    let length = model.len() - from;
    let status = match from {
        0 => "200 OK".to_owned(),
        _ => format!("206 Part\r\nContent-Range: bytes {from}-{}/{}", model.len() - 1, model.len()),
    };
    send(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
    let half = model.len() / 2;
    if stalls.load(Ordering::Relaxed) && from < half {
        send(&model[from..half]);
        while stalls.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        return send(&model[half..half + 1000]);
    }
    send(&model[from..]);
}

#[test]
fn a_model_is_downloaded_stopped_resumed_found_and_loaded() {
    let folder = folder("hub");
    let hub = HubOfTests::start();
    let options = Options { hub: Some(hub.options(&folder)), ..options(&folder, "cpu") };
    let mut window = window(options, [1100.0, 900.0], None);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
    until(&mut window, "the cache", |app| app.models().hub().cached().is_some());
    window.get_by_label("No model is in the cache yet.");
    window.state_mut().models().hub().set_text("org/tiny:Q4_K_M");
    window.run_steps(2);

    hub.stalls.store(true, Ordering::Relaxed);
    click(&mut window, "Download");
    until(&mut window, "half of it", |app| app.models().hub().part() > Some(0.4));
    window.get_by_label_contains("tiny-Q4_K_M.gguf: ");
    press(&mut window, "Stop");
    hub.stalls.store(false, Ordering::Relaxed);
    until(&mut window, "it stops", |app| !app.models().hub().is_downloading());
    assert_eq!(window.state().notice().failure(), None);
    assert_eq!(hub.from.load(Ordering::Relaxed), 0);

    click(&mut window, "Download");
    until(&mut window, "it is there, and estimated", |app| app.models().estimate().is_some());
    // It went on where it had been stopped.
    assert!(hub.from.load(Ordering::Relaxed) > 1_000_000);
    click(&mut window, "Load");
    until(&mut window, "it is loaded", |app| !app.is_busy());
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
    window.run_steps(2);
    let label = window.get_by_label_contains("org/tiny:tiny-Q4_K_M.gguf · ");
    label.click();
    until(&mut window, "an estimate", |app| app.models().estimate().is_some());
    window.state_mut().models().hub().set_text("another");
    window.run_steps(2);
    window.get_by_label("No model in the cache has this in its name.");
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_model_that_the_hub_does_not_have_is_one_message() {
    let folder = folder("hub-absent");
    let hub = HubOfTests::start();
    let options = Options { hub: Some(hub.options(&folder)), ..options(&folder, "cpu") };
    let mut window = window(options, [1100.0, 900.0], None);
    until(&mut window, "the model is loaded", |app| app.loaded().is_some() && !app.is_busy());
    window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::O);
    window.run_steps(2);
    window.state_mut().models().hub().set_text("org/absent");
    window.run_steps(2);
    click(&mut window, "Download");
    until(&mut window, "a message", |app| app.notice().failure().is_some());
    let failure = window.state().notice().failure().unwrap().clone();
    assert!(failure.message.contains("org/absent"), "{failure:?}");
    click(&mut window, "Dismiss");
    click(&mut window, "What is the capital of France?");
    assert_eq!(answered(&mut window).0, PARIS);
    drop(window);
    std::fs::remove_dir_all(folder).unwrap();
}
