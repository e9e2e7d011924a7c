//! Tests downloads from well-behaved and from faulty servers.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use super::server::{Answer, COMMIT, Files, Request, Server, sha256};
use super::*;

thread_local! {
    /// Capacity in bytes of this thread's simulated disk.
    static DISK: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Fails like a full disk if a file of this many bytes does not fit.
pub(super) fn disk_of_tests(bytes: u64) -> std::io::Result<()> {
    match bytes > DISK.get() {
        true => Err(std::io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}

/// The cache of one test, deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("warploom-hub-{}-{count}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn hub(&self, server: &Server) -> Hub {
        Hub::new(HubOptions {
            endpoint: server.address.clone(),
            cache: self.0.clone(),
            token: Some("hf_secret".into()),
            offline: false,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_millis(250),
            attempts: 3,
            backoff: Duration::from_millis(1),
        })
    }

    fn offline(&self) -> Hub {
        let server = Server::new(|_| Answer::new(500, ""));
        let mut hub = self.hub(&server);
        (hub.options.offline, hub.options.endpoint) = (true, "http://127.0.0.1:1".into());
        hub
    }

    /// Returns the names of the files in the folder of blobs.
    fn blobs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join("models--org--name/blobs")) else {
            return Vec::new();
        };
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Creates a partial file, as an interrupted process would leave it.
    fn begin(&self, bytes: &[u8], blob: &str) {
        let folder = self.0.join("models--org--name/blobs");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{blob}.incomplete")), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn files(list: &[(&str, Vec<u8>)]) -> Files {
    Files(list.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect())
}

fn source(text: &str) -> Source {
    Source::parse(text).unwrap()
}

fn fetch(hub: &Hub, text: &str) -> Result<PathBuf> {
    hub.fetch(&source(text), &mut |_| {})
}

#[test]
fn a_file_comes_once_and_lies_where_others_look_for_it() {
    let folder = Folder::new();
    let want = bytes(700_000);
    let list = files(&[("m-Q4_0.gguf", want.clone()), ("sub dir/m-Q8_0.gguf", bytes(9))]);
    let server = Server::new(move |request| list.answer(request));
    let hub = folder.hub(&server);
    assert_eq!(hub.cached(&source("org/name")).unwrap(), None);
    let mut reported = Vec::new();
    let path = hub
        .fetch(&source("org/name:q4_0"), &mut |progress| match progress {
            Progress::File(name, have, all) => reported.push((name.to_owned(), have, all)),
            Progress::Bytes(have) => reported.push((String::new(), have, 0)),
            Progress::Retry(why, _) => panic!("{why}"),
        })
        .unwrap();
    assert_eq!(reported[0], ("m-Q4_0.gguf".to_owned(), 0, 700_000));
    assert_eq!(reported.last().unwrap().1, 700_000);
    let root = folder.0.join("models--org--name");
    assert_eq!(path, root.join("snapshots").join(COMMIT).join("m-Q4_0.gguf"));
    assert!(fs::read(&path).unwrap() == want);
    assert_eq!(folder.blobs(), [sha256(&want)]);
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    #[cfg(unix)]
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("../../blobs").join(sha256(&want)));

    // A repeated fetch requests the list but not the file, and succeeds offline too.
    assert_eq!(fetch(&hub, "org/name:Q4_0").unwrap(), path);
    assert_eq!(server.requests("/resolve/").len(), 1);
    assert_eq!(fetch(&folder.offline(), "org/name:Q4_0").unwrap(), path);
    assert_eq!(hub.cached(&source("org/name:Q4_0")).unwrap(), Some(path));
    let error = fetch(&folder.offline(), "org/name:Q8_0").unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("offline"), "{error}");
    let deep = fetch(&hub, "org/name:Q8_0").unwrap();
    assert!(deep.ends_with("sub dir/m-Q8_0.gguf") && fs::read(deep).unwrap() == bytes(9));
}

/// A transfer resumes where it broke, and every byte is correct.
#[test]
fn what_breaks_is_resumed_byte_by_byte() {
    for stall in [Duration::ZERO, Duration::from_millis(600)] {
        let folder = Folder::new();
        let want = bytes(100_000);
        let list = files(&[("m.gguf", want.clone())]);
        let server = Server::new(move |request: &Request| {
            let answer = list.answer(request);
            // Growing parts; each makes progress, so the number of attempts is not limited.
            match request.path.contains("/resolve/") && request.before < 6 {
                true => Answer { stall, ..answer.cut(7_001 + 100 * request.before) },
                false => answer,
            }
        });
        let mut retries = 0;
        let path = folder.hub(&server).fetch(&source("org/name"), &mut |progress| {
            retries += u32::from(matches!(progress, Progress::Retry(..)));
        });
        assert!(fs::read(path.unwrap()).unwrap() == want);
        assert_eq!(retries, 6);
        let from: Vec<usize> = server.requests("/resolve/").iter().map(Request::from).collect();
        assert_eq!(from.len(), 7);
        assert!(from[0] == 0 && from.windows(2).all(|pair| pair[0] < pair[1]), "{from:?}");
    }
}

#[test]
fn an_earlier_process_is_continued_if_its_bytes_are_right() {
    let want = bytes(50_000);
    let rows: [(Vec<u8>, &[usize]); 4] = [
        (want[..30_000].to_vec(), &[30_000]),
        // Different bytes: detected by the checksum, and downloaded again in full.
        (vec![7; 30_000], &[30_000, 0]),
        (vec![7; 60_000], &[0]),
        // Complete, only the name was missing.
        (want.clone(), &[]),
    ];
    for (begun, ranges) in rows {
        let folder = Folder::new();
        let list = files(&[("m.gguf", want.clone())]);
        let server = Server::new(move |request| list.answer(request));
        folder.begin(&begun, &sha256(&want));
        let path = fetch(&folder.hub(&server), "org/name").unwrap();
        assert!(fs::read(path).unwrap() == want);
        let from: Vec<usize> = server.requests("/resolve/").iter().map(Request::from).collect();
        assert_eq!(from, ranges);
        assert_eq!(folder.blobs(), [sha256(&want)]);
    }
}

/// Without a checksum, bytes of an earlier process cannot be verified and are discarded.
#[test]
fn what_cannot_be_checked_is_not_continued() {
    let want = bytes(50_000);
    let folder = Folder::new();
    let list = files(&[("m.gguf", want.clone())]);
    let server = Server::new(move |request: &Request| match request.path.contains("/api/") {
        true => Answer::new(
            200,
            format!(
                r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"m.gguf","size":50000,"blobId":"{COMMIT}"}}]}}"#
            ),
        ),
        false => list.answer(request),
    });
    folder.begin(&[7; 30_000], COMMIT);
    let path = fetch(&folder.hub(&server), "org/name").unwrap();
    assert!(fs::read(path).unwrap() == want);
    let from: Vec<usize> = server.requests("/resolve/").iter().map(Request::from).collect();
    assert_eq!(from, [0]);
}

/// Only the correct bytes produce a named file.
#[test]
fn lies_are_refused() {
    type Lie = fn(Answer) -> Answer;
    let wrong = |mut answer: Answer| {
        answer.body[1_000] ^= 1;
        answer
    };
    let rows: [(Lie, &str, bool); 7] = [
        (wrong, "sha256", true),
        (|answer| Answer::new(200, vec![1; 50]).with("X", answer.status), "its list says", false),
        (|answer| answer.with("Content-Length", 1_000_000_000_000u64), "its list says", false),
        (|answer| answer.cut(0), "given up after 3 attempts", false),
        (
            |_| Answer::new(206, vec![1; 10]).with("Content-Range", "bytes 5-14/20000"),
            "when asked",
            false,
        ),
        (|_| Answer::new(206, vec![1; 10]), "no range", false),
        (|_| Answer::new(416, ""), "nothing from that offset", false),
    ];
    for (lie, words, checksum) in rows {
        let folder = Folder::new();
        let list = files(&[("m.gguf", bytes(20_000))]);
        let server = Server::new(move |request: &Request| {
            let answer = list.answer(request);
            if request.path.contains("/resolve/") { lie(answer) } else { answer }
        });
        let error = fetch(&folder.hub(&server), "org/name").unwrap_err();
        assert!(error.to_string().contains(words), "{error}, want {words}");
        assert_eq!(error.is_bad_file() && checksum, checksum, "{error:?}");
        assert!(folder.blobs().iter().all(|name| name.ends_with(".incomplete")), "{words}");
        assert!(!checksum || folder.blobs().is_empty());
        assert_eq!(folder.hub(&server).cached(&source("org/name")).unwrap(), None);
    }
}

#[test]
fn the_token_goes_to_the_hub_alone() {
    let folder = Folder::new();
    let want = bytes(30_000);
    let list = files(&[("m.gguf", want.clone())]);
    let elsewhere = {
        let list = list.clone();
        Server::new(move |request| {
            // The transfer breaks there too, and the range is sent again.
            let answer = list.answer(request);
            if request.before == 0 { answer.cut(10_000) } else { answer }
        })
    };
    let to = elsewhere.address.clone();
    let server = Server::new(move |request: &Request| match request.path.strip_prefix("/again") {
        Some(path) => Answer::new(302, "").with("Location", format!("{to}{path}")),
        None if request.path.contains("/resolve/") => {
            Answer::new(307, "").with("Location", format!("/again{}", request.path))
        }
        None => list.answer(request),
    });
    let path = fetch(&folder.hub(&server), "org/name").unwrap();
    assert!(fs::read(path).unwrap() == want);
    let there = elsewhere.requests("");
    assert_eq!(there.len(), 2);
    assert!(there.iter().all(|request| request.header("authorization").is_none()));
    assert_eq!(there[1].from(), 10_000);
    let here = server.requests("");
    assert_eq!(here.len(), 5);
    for request in here {
        assert_eq!(request.header("authorization"), Some("Bearer hf_secret"), "{}", request.path);
    }
    // The token does not appear in debug output either.
    let options = folder.hub(&server).options;
    assert!(!format!("{options:?}").contains("secret"));
}

#[test]
fn redirects_end() {
    for to in ["/org/name/resolve/x", "ftp://127.0.0.1/x", "nonsense", "http://"] {
        let folder = Folder::new();
        let server = Server::new(move |_| Answer::new(302, "").with("Location", to));
        let error = fetch(&folder.hub(&server), "org/name").unwrap_err().to_string();
        assert!(error.contains("redirects") || error.contains("leads"), "{to}: {error}");
        assert!(server.requests("").len() <= 11);
    }
}

#[test]
fn refusals_are_reported_and_only_temporary_ones_are_retried() {
    let rows: [(u16, &str, usize); 6] = [
        (401, "the token in HF_TOKEN does not open it", 1),
        (403, "private or gated", 1),
        (404, "does not have it (404)", 1),
        (400, "answers 400", 1),
        (429, "given up after 3 attempts", 3),
        (503, "given up after 3 attempts", 3),
    ];
    for (status, words, requests) in rows {
        let folder = Folder::new();
        let server = Server::new(move |_| Answer::new(status, "").with("Retry-After", 0));
        let error = fetch(&folder.hub(&server), "org/name").unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("secret"));
        assert_eq!(server.requests("").len(), requests, "{status}");
    }
    // A failure that is temporary.
    let folder = Folder::new();
    let list = files(&[("m.gguf", bytes(10))]);
    let server = Server::new(move |request: &Request| match request.before {
        0 => Answer::new(429, "").with("Retry-After", 0),
        1 => Answer::new(500, ""),
        _ => list.answer(request),
    });
    fetch(&folder.hub(&server), "org/name").unwrap();
    // An unreachable server.
    let folder = Folder::new();
    let mut hub = folder.offline();
    hub.options.offline = false;
    let error = fetch(&hub, "org/name").unwrap_err();
    assert!(error.to_string().contains("127.0.0.1 cannot be reached"), "{error}");
    // The reason appears once, at the end.
    let whole = error.duplicate().to_string();
    assert_eq!(whole.matches("os error").count(), 1, "{whole}");
}

#[test]
fn names_from_a_server_stay_in_the_cache() {
    let list = |name: &str, blob: &str, commit: &str| {
        format!(
            r#"{{"sha":"{commit}","siblings":[{{"rfilename":"{name}","size":1,"lfs":{{"sha256":"{blob}","size":1}}}}]}}"#
        )
    };
    let blob = "0".repeat(64);
    let rows = [
        list("../../../x.gguf", &blob, COMMIT),
        list("/etc/x.gguf", &blob, COMMIT),
        list("a/../../x.gguf", &blob, COMMIT),
        list("a//x.gguf", &blob, COMMIT),
        list("./x.gguf", &blob, COMMIT),
        list(r"..\\x.gguf", &blob, COMMIT),
        list("C:x.gguf", &blob, COMMIT),
        list(r"a\u0000.gguf", &blob, COMMIT),
        list(&"a".repeat(600), &blob, COMMIT),
        list("x.gguf", "../../x", COMMIT),
        list("x.gguf", &"g".repeat(64), COMMIT),
        list("x.gguf", &blob, "../../../x"),
        list("x.gguf", &blob, ""),
        "[]".to_owned(),
        "<html>".to_owned(),
        String::new(),
    ];
    for row in rows {
        let folder = Folder::new();
        let text = row.clone();
        let server = Server::new(move |_| Answer::new(200, text.clone()));
        let error = fetch(&folder.hub(&server), "org/name").unwrap_err();
        assert!(error.is_bad_file(), "{row:.200}: {error}");
        assert!(!folder.0.exists(), "{row:.200}");
    }
}

#[test]
fn a_full_disk_is_reported_and_left_unchanged() {
    let folder = Folder::new();
    let list = files(&[("m.gguf", bytes(3_000_000))]);
    let server = Server::new(move |request| list.answer(request));
    DISK.set(1_000_000);
    let error = fetch(&folder.hub(&server), "org/name").unwrap_err().to_string();
    assert!(error.contains("is full: 3000000 bytes are needed"), "{error}");
    assert_eq!(server.requests("/resolve/").len(), 1);
    assert!(folder.blobs().is_empty(), "{:?}", folder.blobs());
    DISK.set(u64::MAX);
    fetch(&folder.hub(&server), "org/name").unwrap();
}

#[test]
fn a_transfer_is_stopped_and_the_next_one_goes_on() {
    let folder = Folder::new();
    let want = bytes(2_000_000);
    let list = files(&[("m-Q4_0.gguf", want.clone())]);
    let server = Server::new(move |request| list.answer(request));
    let stop = Arc::new(AtomicBool::new(false));
    let hub = folder.hub(&server).stopped_by(stop.clone());
    let stopped = hub.fetch(&source("org/name"), &mut |progress| {
        if matches!(progress, Progress::Bytes(_)) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let error = stopped.unwrap_err();
    assert!(error.is_io() && error.to_string().contains("was stopped"), "{error}");
    assert_eq!(hub.list().unwrap(), []);
    stop.store(false, Ordering::Relaxed);
    let mut begun = 0;
    let path = hub.fetch(&source("org/name"), &mut |progress| {
        if let Progress::File(_, have, _) = progress {
            begun = have;
        }
    });
    assert!(begun > 0 && begun < 2_000_000, "{begun}");
    assert!(fs::read(path.unwrap()).unwrap() == want);
}

#[test]
fn the_models_in_the_cache_are_listed() {
    let folder = Folder::new();
    let names = ["m-Q8_0.gguf", "m-Q4_0.gguf", "big-00001-of-00002.gguf", "mmproj-m.gguf"];
    let list = files(&names.map(|name| (name, bytes(9))));
    let hub = folder.hub(&Server::new(move |request| list.answer(request)));
    // Without a cache.
    assert_eq!(hub.list().unwrap(), []);
    for what in ["Q8_0", "Q4_0", "mmproj-m.gguf"] {
        fetch(&hub, &format!("org/name:{what}")).unwrap();
    }
    // A folder of another program, and the first part of a split file alone.
    fs::create_dir_all(folder.0.join("models--..--name/refs")).unwrap();
    let snapshot = folder.0.join("models--org--name/snapshots").join(COMMIT);
    fs::write(snapshot.join("big-00001-of-00002.gguf"), "part").unwrap();
    let found = hub.list().unwrap();
    let shown = found.iter().map(|model| (model.source.to_string(), model.bytes));
    let want = ["org/name:m-Q4_0.gguf", "org/name:m-Q8_0.gguf"].map(|name| (name.to_owned(), 9));
    assert_eq!(shown.collect::<Vec<_>>(), want);
    assert_eq!(found[0].path, snapshot.join("m-Q4_0.gguf"));
    assert_eq!(hub.cached(&found[0].source).unwrap().as_ref(), Some(&found[0].path));
}

#[test]
fn two_at_once_fetch_one_file_once() {
    let folder = Folder::new();
    let want = bytes(200_000);
    let list = files(&[("m.gguf", want.clone())]);
    let server = Server::new(move |request: &Request| {
        std::thread::sleep(Duration::from_millis(50));
        list.answer(request)
    });
    std::thread::scope(|scope| {
        let one = || fs::read(fetch(&folder.hub(&server), "org/name").unwrap()).unwrap();
        let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        for thread in all {
            assert!(thread.join().unwrap() == want);
        }
    });
    assert_eq!(server.requests("/resolve/").len(), 1);
    assert_eq!(folder.blobs(), [sha256(&want)]);
}

#[test]
fn several_files_of_a_model_come_together() {
    let folder = Folder::new();
    let parts = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"];
    let list = files(&[(parts[0], bytes(5)), (parts[1], bytes(6)), ("x.txt", bytes(7))]);
    let server = Server::new(move |request| list.answer(request));
    let path = fetch(&folder.hub(&server), "org/name").unwrap();
    assert!(path.ends_with(parts[0]) && path.with_file_name(parts[1]).is_file());
    assert!(!path.with_file_name("x.txt").exists());
    let list = files(&[(parts[0], bytes(5))]);
    let half = Server::new(move |request| list.answer(request));
    let error = fetch(&Folder::new().hub(&half), "org/name").unwrap_err();
    assert!(error.to_string().contains(parts[1]), "{error}");
    // An incomplete model does not count as cached.
    fs::remove_file(path.with_file_name(parts[1])).unwrap();
    assert_eq!(folder.hub(&server).cached(&source("org/name")).unwrap(), None);

    let folder = Folder::new();
    let names = ["config.json", "tokenizer.json", "model.safetensors"];
    let list = files(&names.map(|name| (name, bytes(name.len()))));
    let server = Server::new(move |request| list.answer(request));
    let path = fetch(&folder.hub(&server), "org/name").unwrap();
    assert!(path.is_dir() && names.iter().all(|name| path.join(name).is_file()));
}

#[test]
fn names_of_models_are_distinguished_from_paths() {
    for text in ["org/name", "o-1/n_2.gguf-x", "org/name:Q4_K_M", "org/name:a/b.gguf"] {
        assert!(Source::is_meant(text), "{text}");
        assert_eq!(source(text).to_string(), text);
    }
    let short =
        ["", "name", "/org/name", "./name", "../name", "a/b/c", "org/", "/name", "org/na me"];
    let others = ["org/name:", "o--x/n", "org/..", "src/gguf", "model.gguf"];
    let long = ["org/name.gguf", "org/name:../x", "org/name:/x", "org/n\u{e4}me", "https://x/y"];
    for text in short.iter().chain(&others).chain(&long) {
        assert!(!Source::is_meant(text), "{text}");
    }
}
