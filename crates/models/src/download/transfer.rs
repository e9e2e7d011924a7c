//! Transfers files over HTTP: resumes after interruptions, and verifies a file before it gets its
//! name.
//!
//! Redirects are followed here and not by the HTTP library, so that the token is sent only to the
//! hub.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::{Agent, Body};

use super::cache::io;
use super::{HubOptions, Progress};
use warploom_core::error::{Error, Result};

const MAX_REDIRECTS: usize = 10;
/// Maximum bytes of the list of files.
const MAX_TEXT: u64 = 32 << 20;
const PIECE: usize = 256 << 10;
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval at which a delay looks whether the transfer is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A file to transfer.
pub(super) struct Wanted<'a> {
    pub(super) url: String,
    pub(super) name: &'a str,
    pub(super) size: u64,
    pub(super) sha256: Option<&'a str>,
    pub(super) incomplete: &'a Path,
    pub(super) blob: &'a Path,
}

/// Why an attempt failed.
enum Failure {
    /// Temporary; retried after the delay that the server requests, if any.
    Again(Error, Option<Duration>),
    /// Permanent.
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Final(error)
    }
}

/// The bytes present so far, and their running checksum.
struct Partial {
    file: File,
    have: u64,
    hash: Sha256,
    /// Whether some bytes come from an earlier process.
    resumed: bool,
}

/// The HTTP client of a hub.
pub(super) struct Client<'a> {
    agent: Agent,
    endpoint: Uri,
    options: &'a HubOptions,
    stop: &'a AtomicBool,
}

impl<'a> Client<'a> {
    /// Creates a client for the hub in `options`.
    ///
    /// # Errors
    /// Invalid if the endpoint is not a valid address.
    pub(super) fn new(options: &'a HubOptions, stop: &'a AtomicBool) -> Result<Client<'a>> {
        let address = options.endpoint.trim_end_matches('/');
        let endpoint: Uri = address
            .parse()
            .ok()
            .filter(|uri: &Uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
            })
            .ok_or_else(|| Error::invalid(format!("{address:?} is not the address of a hub")))?;
        let config = Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("warploom/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.connect_timeout))
            .timeout_per_read(Some(options.stall_timeout))
            .build();
        Ok(Client { agent: config.new_agent(), endpoint, options, stop })
    }

    /// Returns the URL of a path on the hub, percent-encoded.
    pub(super) fn url(&self, path: &str) -> String {
        let mut url = self.options.endpoint.trim_end_matches('/').to_owned();
        url.push('/');
        for byte in path.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => url.push(byte.into()),
                b'-' | b'_' | b'.' | b'~' | b'/' | b'?' | b'=' | b'&' => url.push(byte.into()),
                _ => url.push_str(&format!("%{byte:02X}")),
            }
        }
        url
    }

    /// Fetches the text at a URL of the hub, with retries. `name` is the model in errors.
    pub(super) fn text(
        &self,
        url: &str,
        name: &str,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<String> {
        let mut failures = 0;
        loop {
            let attempt = self.get(url, 0, name).and_then(|mut response| {
                let body = response.body_mut().with_config().limit(MAX_TEXT).read_to_string();
                body.map_err(|e| self.network(url, e))
            });
            match attempt {
                Ok(text) => return Ok(text),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error, wait)) => {
                    failures += 1;
                    self.wait(failures, error, wait, progress)?;
                }
            }
        }
    }

    /// Downloads a file, and renames it to its blob once it is verified.
    pub(super) fn transfer(
        &self,
        wanted: &Wanted<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut partial = open(wanted)?;
        progress(Progress::File(wanted.name, partial.have, wanted.size));
        loop {
            let done = self.complete(wanted, &mut partial, progress);
            if let Err(error) = done {
                // On a full disk the partial file is deleted, to free the space.
                if is_full(&error) {
                    let _ = fs::remove_file(wanted.incomplete);
                }
                return Err(error);
            }
            let found = hex(&partial.hash.clone().finalize());
            match wanted.sha256 {
                Some(sha256) if sha256 != found => {
                    // The old bytes may be wrong: retry once without them.
                    if partial.resumed {
                        partial.restart().map_err(|e| io("shorten", wanted.incomplete, e))?;
                        continue;
                    }
                    let _ = fs::remove_file(wanted.incomplete);
                    return Err(Error::bad_file(format!(
                        "{}: the sha256 of the download is {found}, the hub lists {sha256}; it \
                         was discarded",
                        wanted.name
                    )));
                }
                _ => break,
            }
        }
        let synced = partial.file.sync_all();
        synced.map_err(|e| io("write", wanted.incomplete, e))?;
        drop(partial);
        fs::rename(wanted.incomplete, wanted.blob).map_err(|e| io("rename", wanted.incomplete, e))
    }

    /// Makes attempts until the file is complete or too many fail without progress.
    fn complete(
        &self,
        wanted: &Wanted<'_>,
        partial: &mut Partial,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut failures = 0;
        while partial.have < wanted.size {
            let before = partial.have;
            match self.attempt(wanted, partial, progress) {
                Ok(()) => {}
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(error, wait)) => {
                    failures = if partial.have > before { 1 } else { failures + 1 };
                    self.wait(failures, error, wait, progress)?;
                }
            }
        }
        Ok(())
    }

    /// Makes one request, and appends the bytes of its response to the partial file.
    fn attempt(
        &self,
        wanted: &Wanted<'_>,
        partial: &mut Partial,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> std::result::Result<(), Failure> {
        let mut response = self.get(&wanted.url, partial.have, wanted.name)?;
        let disk = |e| io("write", wanted.incomplete, e);
        let lie = |what: String| {
            Failure::Again(Error::bad_file(format!("{}: the server {what}", wanted.name)), None)
        };
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = header(header::CONTENT_RANGE).unwrap_or("no range").to_owned();
                let want = format!("bytes {}-{}/{}", partial.have, wanted.size - 1, wanted.size);
                if range != want {
                    return Err(lie(format!("sent {range:.80?} when asked for {want:?}")));
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                partial.restart().map_err(disk)?;
                return Err(lie("reports nothing from that offset on".into()));
            }
            // The response is the full file, whatever range was requested.
            _ => {
                let length = header(header::CONTENT_LENGTH).and_then(|n| n.parse().ok());
                if length.is_some_and(|length: u64| length != wanted.size) {
                    let length = length.unwrap_or_default();
                    let size = wanted.size;
                    return Err(lie(format!("has {length} bytes, its list says {size}")));
                }
                if partial.have > 0 {
                    partial.restart().map_err(disk)?;
                }
            }
        }
        let mut body = response.body_mut().as_reader();
        let mut piece = vec![0; PIECE];
        while partial.have < wanted.size {
            self.check_stop()?;
            let most = usize::try_from(wanted.size - partial.have).map_or(PIECE, |n| n.min(PIECE));
            let count = match body.read(&mut piece[..most]) {
                Ok(0) => return Err(lie(format!("ended after {} bytes", partial.have))),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(Failure::Again(
                        Error::io(format!("{}: the transfer broke", wanted.name), error),
                        None,
                    ));
                }
            };
            partial.append(&piece[..count]).map_err(|e| full_or(wanted, e))?;
            progress(Progress::Bytes(partial.have));
        }
        Ok(())
    }

    /// Reports a failure and waits before the next attempt, or gives up.
    fn wait(
        &self,
        failures: u32,
        error: Error,
        wait: Option<Duration>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        if failures >= self.options.attempts {
            return Err(error.context(format!("given up after {failures} attempts")));
        }
        let own = self.options.backoff.saturating_mul(1 << (failures - 1).min(10));
        let wait = wait.unwrap_or(own).min(MAX_WAIT);
        // The text includes the underlying error.
        progress(Progress::Retry(&error.duplicate().to_string(), wait));
        let begin = std::time::Instant::now();
        while let Some(left) = wait.checked_sub(begin.elapsed()) {
            self.check_stop()?;
            std::thread::sleep(left.min(LOOK));
        }
        self.check_stop()
    }

    /// Returns an error once the transfer is to end.
    fn check_stop(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => {
                let stopped = std::io::Error::from(ErrorKind::Interrupted);
                Err(Error::io("the download was stopped; the next one goes on from there", stopped))
            }
            false => Ok(()),
        }
    }

    /// Requests a URL from byte `from` on, follows redirects, and returns the successful response.
    fn get(
        &self,
        url: &str,
        from: u64,
        name: &str,
    ) -> std::result::Result<Response<Body>, Failure> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let uri: Uri = url.parse().map_err(|_| {
                Error::bad_file(format!("{name}: the server leads to {:.200?}", url))
            })?;
            let mut request = self.agent.get(&url);
            // Files must not be compressed in transit.
            request = request.header(header::ACCEPT_ENCODING, "identity");
            if let Some(token) = self.options.token.as_ref().filter(|_| self.is_hub(&uri)) {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            let response = request.call().map_err(|e| self.network(&url, e))?;
            if !response.status().is_redirection() {
                return self.judged(response, name);
            }
            let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
            url = to.and_then(|to| self.resolved(&uri, to)).ok_or_else(|| {
                Error::bad_file(format!("{name}: {url} leads nowhere: {:.200?}", to))
            })?;
        }
        Err(Error::bad_file(format!("{name}: more than {MAX_REDIRECTS} redirects")).into())
    }

    /// Returns whether a URL belongs to the hub: same scheme, host and port.
    fn is_hub(&self, uri: &Uri) -> bool {
        let port = |uri: &Uri| match (uri.port_u16(), uri.scheme_str()) {
            (Some(port), _) => port,
            (None, Some("http")) => 80,
            _ => 443,
        };
        uri.scheme() == self.endpoint.scheme()
            && uri.host() == self.endpoint.host()
            && port(uri) == port(&self.endpoint)
    }

    /// Returns the target of a redirect, or `None` if it is not valid or leads from a secure
    /// connection to an insecure one.
    fn resolved(&self, from: &Uri, to: &str) -> Option<String> {
        let scheme = from.scheme_str()?;
        let url = match to.strip_prefix("//") {
            Some(rest) => format!("{scheme}://{rest}"),
            None if to.starts_with('/') => format!("{scheme}://{}{to}", from.authority()?),
            None => to.to_owned(),
        };
        let uri: Uri = url.parse().ok()?;
        match (scheme, uri.scheme_str()?) {
            (_, "https") | ("http", "http") => Some(url),
            _ => None,
        }
    }

    /// Classifies a response: success, or the kind of failure.
    fn judged(
        &self,
        response: Response<Body>,
        name: &str,
    ) -> std::result::Result<Response<Body>, Failure> {
        let status = response.status();
        let code = status.as_u16();
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let endpoint = &self.options.endpoint;
        match code {
            200 | 206 | 416 => Ok(response),
            401 | 403 => Err(Error::invalid(format!(
                "{name}: {endpoint} refuses access ({code}): there is no such model, or it is \
                 private or gated; {}",
                match self.options.token {
                    Some(_) => "the token in HF_TOKEN does not open it",
                    None => "set HF_TOKEN to a token that may read it",
                }
            ))
            .into()),
            404 => Err(Error::invalid(format!("{name}: {endpoint} does not have it (404)")).into()),
            408 | 425 | 429 | 500..=599 => Err(Failure::Again(
                Error::invalid(format!("{name}: {endpoint} answers {status}")),
                after.map(Duration::from_secs),
            )),
            _ => Err(Error::invalid(format!("{name}: {endpoint} answers {status}")).into()),
        }
    }

    /// Classifies a network error, which may be temporary.
    fn network(&self, url: &str, error: ureq::Error) -> Failure {
        let host = url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let host = host.unwrap_or_default();
        let text = format!("{host} cannot be reached");
        let again = !matches!(error, ureq::Error::BadUri(_) | ureq::Error::BodyExceedsLimit(_));
        let error = Error::io(text, std::io::Error::other(error));
        if again { Failure::Again(error, None) } else { Failure::Final(error) }
    }
}

/// Opens the partial file and computes its checksum. Starts with an empty file if the hub lists no
/// checksum, since old bytes cannot be verified (after a power loss, for example). Does not follow
/// a link in place of the file.
fn open(wanted: &Wanted<'_>) -> Result<Partial> {
    let path = wanted.incomplete;
    let disk = |action| move |e| io(action, path, e);
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        fs::remove_file(path).map_err(disk("remove"))?;
    }
    let options = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = options.map_err(disk("open"))?;
    let mut hash = Sha256::new();
    let mut have = file.metadata().map_err(disk("look at it"))?.len();
    if have > wanted.size || wanted.sha256.is_none() {
        file.set_len(0).map_err(disk("shorten"))?;
        have = 0;
    }
    let mut piece = vec![0; PIECE];
    let mut left = have;
    while left > 0 {
        let count = file.read(&mut piece).map_err(disk("read"))?;
        if count == 0 {
            return Err(Error::bad_file(format!("{}: became shorter", path.display())));
        }
        hash.update(&piece[..count]);
        left = left.saturating_sub(count as u64);
    }
    Ok(Partial { file, have, hash, resumed: have > 0 })
}

impl Partial {
    /// Discards all bytes, to start from the beginning.
    fn restart(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.have, self.resumed) = (0, false);
        self.hash = Sha256::new();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        #[cfg(test)]
        super::tests::disk_of_tests(self.have + bytes.len() as u64)?;
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.have += bytes.len() as u64;
        Ok(())
    }
}

/// Converts a write error; if the disk is full, the error names the size of the file.
fn full_or(wanted: &Wanted<'_>, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::io(
            format!(
                "{}: the disk of {} is full: {} bytes are needed",
                wanted.name,
                wanted.blob.display(),
                wanted.size
            ),
            error,
        ),
        _ => io("write", wanted.incomplete, error),
    }
}

fn is_full(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|e| e.downcast_ref::<std::io::Error>())
        .is_some_and(|e| matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
