//! Finds models by their Hugging Face name: downloads them from the hub into its cache, or only
//! looks in the cache.
//!
//! [`Source`] is a name such as `org/name:Q4_K_M`. [`Hub`] selects the files (`choose`), transfers
//! the missing ones (`transfer`) and stores them in the layout of the hub's other clients
//! (`cache`), so that the cache is shared. The server is untrusted: its file names cannot escape
//! the cache, a file gets its name only once its size and, if the hub lists it, its checksum are
//! verified, and the token is sent only to the hub's own address.

mod cache;
mod choose;
mod transfer;

#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Deserialize;

use cache::Repo;
use transfer::{Client, Wanted};
use warploom_core::config;
use warploom_core::error::{Error, Result};

/// Maximum bytes of the name of an organisation or of a model.
const MAX_NAME: usize = 96;
/// Maximum number of files in a repository.
const MAX_FILES: usize = 100_000;

/// A model on the hub: `org/name`, `org/name:Q4_K_M` or `org/name:folder/file.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    repo: String,
    what: Option<String>,
}

impl Source {
    /// Parses the name of a model on the hub.
    ///
    /// # Errors
    /// Invalid, showing the expected forms, if `text` has none of them.
    pub fn parse(text: &str) -> Result<Source> {
        let (repo, what) = match text.split_once(':') {
            Some((repo, what)) => (repo, Some(what)),
            None => (text, None),
        };
        let part = |part: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty()
                && part.len() <= MAX_NAME
                && part.chars().all(fits)
                && !part.starts_with(['.', '-'])
                && !part.contains("..")
                && !part.contains("--")
        };
        let fits = repo.split_once('/').is_some_and(|(org, name)| part(org) && part(name));
        let what_fits = what.is_none_or(|what| !what.is_empty() && cache::is_safe(what));
        if !fits || !what_fits {
            return Err(Error::invalid(format!(
                "{text:?} is not the name of a model on Hugging Face: org/name, org/name:Q4_K_M or \
                 org/name:file.gguf"
            )));
        }
        Ok(Source { repo: repo.to_owned(), what: what.map(str::to_owned) })
    }

    /// Returns whether `text` must be a name on the hub and not a path: it is `org/name` or
    /// `org/name:what`, `name` does not end in the extension of a model file, and no local file has
    /// that path.
    pub fn is_meant(text: &str) -> bool {
        let repo = text.split(':').next().unwrap_or_default();
        let file = [".gguf", ".safetensors", ".json"].iter().any(|end| repo.ends_with(end));
        !file && Source::parse(text).is_ok() && !Path::new(text).exists()
    }

    /// Returns the repository, `org/name`.
    pub fn repo(&self) -> &str {
        &self.repo
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.what {
            Some(what) => write!(f, "{}:{what}", self.repo),
            None => f.write_str(&self.repo),
        }
    }
}

/// Locations of the hub and of its cache, and limits for transfers.
#[derive(Clone)]
pub struct HubOptions {
    /// URL of the hub.
    pub endpoint: String,
    /// Folder of the cache, which is shared with the hub's other clients.
    pub cache: PathBuf,
    /// Access token, sent only to `endpoint`.
    pub token: Option<String>,
    /// Disables all network access.
    pub offline: bool,
    /// Maximum time to connect, and then until the response begins.
    pub connect_timeout: Duration,
    /// Maximum time without data, after which a transfer counts as stalled.
    pub stall_timeout: Duration,
    /// Maximum number of consecutive attempts without progress.
    pub attempts: u32,
    /// Delay after the first attempt without progress; doubled after each later one, up to a
    /// minute.
    pub backoff: Duration,
}

impl HubOptions {
    /// Reads options from the environment: `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`,
    /// `XDG_CACHE_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// Invalid if no variable locates the cache and there is no home folder.
    pub fn from_env() -> Result<HubOptions> {
        let yes = |value: String| {
            matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
        };
        let endpoint = config::var(&config::HF_ENDPOINT);
        Ok(HubOptions {
            endpoint: endpoint.unwrap_or_else(|| "https://huggingface.co".to_owned()),
            cache: default_cache()?,
            token: config::var(&config::HF_TOKEN),
            offline: config::var(&config::HF_HUB_OFFLINE).is_some_and(yes),
            connect_timeout: Duration::from_secs(20),
            stall_timeout: Duration::from_secs(30),
            attempts: 5,
            backoff: Duration::from_secs(1),
        })
    }
}

impl std::fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "set");
        write!(f, "HubOptions({}, {}, token {token:?})", self.endpoint, self.cache.display())
    }
}

fn default_cache() -> Result<PathBuf> {
    if let Some(cache) = config::var(&config::HF_HUB_CACHE) {
        return Ok(cache.into());
    }
    if let Some(home) = config::var(&config::HF_HOME) {
        return Ok(Path::new(&home).join("hub"));
    }
    let folder = match config::var(&config::XDG_CACHE_HOME) {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()
            .ok_or_else(|| Error::invalid("there is no home folder; set HF_HOME"))?
            .join(".cache"),
    };
    Ok(folder.join("huggingface").join("hub"))
}

/// Progress of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file starts or resumes: its name, bytes present, total bytes.
    File(&'a str, u64, u64),
    /// Number of bytes of the file that are present now.
    Bytes(u64),
    /// An attempt failed with this error; the next one starts after this delay.
    Retry(&'a str, Duration),
}

/// A file of a repository, as the hub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RemoteFile {
    path: String,
    size: u64,
    /// Name of the blob: the sha256 of a large file, or git's object id.
    blob: String,
    /// Checksum in hexadecimal; the hub lists it for large files only.
    sha256: Option<String>,
}

/// A model in the cache that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// Its name on the hub.
    pub source: Source,
    /// Its path, as [`Hub::cached`] returns it.
    pub path: PathBuf,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// The hub and its cache.
#[derive(Debug)]
pub struct Hub {
    options: HubOptions,
    stop: Arc<AtomicBool>,
}

impl Hub {
    /// Creates a hub with these options.
    pub fn new(options: HubOptions) -> Hub {
        Hub { options, stop: Arc::default() }
    }

    /// Ends transfers once the flag is set, with an error. The next one of the same file goes on
    /// from there.
    pub fn stopped_by(mut self, stop: Arc<AtomicBool>) -> Hub {
        self.stop = stop;
        self
    }

    /// Returns the models in the cache, sorted by name: each GGUF file, or the first part of a split
    /// one, and each folder of safetensors. Incomplete ones are left out.
    ///
    /// # Errors
    /// Io if the cache cannot be read; a cache that does not exist is empty.
    pub fn list(&self) -> Result<Vec<CachedModel>> {
        let mut all = Vec::new();
        for name in cache::repositories(&self.options.cache)? {
            let repo = Repo::new(&self.options.cache, &name);
            let Some(commit) = repo.commit()? else { continue };
            let names = repo.files(&commit)?;
            for what in choose::each(&names) {
                let source = Source { repo: name.clone(), what };
                // A part is missing.
                let Ok(chosen) = choose::choose(&names, &source) else { continue };
                if !chosen.iter().all(|name| names.contains(name)) {
                    continue;
                }
                let snapshot = repo.snapshot(&commit);
                let sizes = chosen.iter().map(|name| cache::size(&snapshot.join(name)));
                let bytes = sizes.sum::<Result<u64>>()?;
                all.push(CachedModel { source, path: place(&repo, &commit, &chosen), bytes });
            }
        }
        all.sort_by_cached_key(|model| model.source.to_string().to_lowercase());
        Ok(all)
    }

    /// Returns the path of a model in the cache: a GGUF file (the first part if it is split) or a
    /// folder of safetensors files. Returns `None` if the model is absent or incomplete, or if
    /// several files match.
    ///
    /// # Errors
    /// Io if the cache cannot be read.
    pub fn cached(&self, source: &Source) -> Result<Option<PathBuf>> {
        let repo = Repo::new(&self.options.cache, &source.repo);
        let Some(commit) = repo.commit()? else { return Ok(None) };
        let names = repo.files(&commit)?;
        if names.is_empty() {
            return Ok(None);
        }
        match choose::choose(&names, source) {
            Ok(chosen) if chosen.iter().all(|name| names.contains(name)) => {
                Ok(Some(place(&repo, &commit, &chosen)))
            }
            _ => Ok(None),
        }
    }

    /// Downloads the missing files of a model into the cache, and returns its path as
    /// [`Hub::cached`] does.
    ///
    /// # Errors
    /// Unsupported if the model is not in the cache and [`HubOptions::offline`] is set; invalid if
    /// the hub has no such model or file (listing the candidates), or denies access; io if the
    /// network or the disk fails, or the transfer is stopped; bad file if the hub's answer is not
    /// valid or a checksum is wrong.
    pub fn fetch(
        &self,
        source: &Source,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf> {
        if self.options.offline {
            return match self.cached(source)? {
                Some(path) => Ok(path),
                None => Err(Error::unsupported(format!(
                    "{source} is incomplete in {}, and nothing is fetched offline",
                    self.options.cache.display()
                ))),
            };
        }
        let client = Client::new(&self.options, &self.stop)?;
        let (commit, files) = self.files(&client, source, progress)?;
        let names: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        let chosen = choose::choose(&names, source)?;
        let repo = Repo::new(&self.options.cache, &source.repo);
        repo.create()?;
        for name in &chosen {
            let Some(file) = files.iter().find(|file| file.path == *name) else {
                return Err(Error::invalid(format!("{source}: {name} is missing on the hub")));
            };
            self.file(&client, &repo, &commit, file, progress)?;
        }
        repo.set_commit(&commit)?;
        Ok(place(&repo, &commit, &chosen))
    }

    /// Downloads a file unless it is cached, and links it into the snapshot.
    fn file(
        &self,
        client: &Client<'_>,
        repo: &Repo,
        commit: &str,
        file: &RemoteFile,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let blob = repo.blob(&file.blob);
        // A second process that downloads this file waits here, and then finds it complete.
        let _lock = repo.lock(&file.blob)?;
        if !repo.is_whole(&blob, file.size)? {
            let path = format!("{}/resolve/{commit}/{}", repo.name(), file.path);
            let wanted = Wanted {
                url: client.url(&path),
                name: &file.path,
                size: file.size,
                sha256: file.sha256.as_deref(),
                incomplete: &repo.incomplete(&file.blob),
                blob: &blob,
            };
            client.transfer(&wanted, progress)?;
        }
        repo.link(commit, &file.path, &file.blob)
    }

    /// Fetches the commit of the model's main branch and the list of its files.
    fn files(
        &self,
        client: &Client<'_>,
        source: &Source,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(String, Vec<RemoteFile>)> {
        #[derive(Deserialize)]
        struct Info {
            sha: String,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Sibling {
            rfilename: String,
            size: Option<u64>,
            blob_id: Option<String>,
            lfs: Option<Lfs>,
        }
        #[derive(Deserialize)]
        struct Lfs {
            sha256: String,
            size: u64,
        }
        let url = client.url(&format!("api/models/{}/revision/main?blobs=true", source.repo));
        let text = client.text(&url, &source.to_string(), progress)?;
        let wrong = |what: String| Error::bad_file(format!("{url}: {what}"));
        let info: Info = serde_json::from_str(&text)
            .map_err(|e| wrong("the answer is not a list of files".into()).with_source(e))?;
        if !is_hex(&info.sha, 40) || info.siblings.len() > MAX_FILES {
            return Err(wrong(format!("commit {:.80?}, {} files", info.sha, info.siblings.len())));
        }
        let mut files = Vec::with_capacity(info.siblings.len());
        for sibling in info.siblings {
            let sha256 = sibling.lfs.as_ref().map(|lfs| lfs.sha256.to_ascii_lowercase());
            let blob = sha256.clone().or(sibling.blob_id);
            let size = sibling.lfs.map(|lfs| lfs.size).or(sibling.size);
            // Files with incomplete metadata are skipped.
            let (Some(blob), Some(size)) = (blob, size) else { continue };
            let named = if sha256.is_some() { is_hex(&blob, 64) } else { is_hex(&blob, 40) };
            if !named || !cache::is_safe(&sibling.rfilename) {
                return Err(wrong(format!(
                    "file {:.120?} with id {blob:.80?} cannot be stored in a cache",
                    sibling.rfilename
                )));
            }
            files.push(RemoteFile { path: sibling.rfilename, size, blob, sha256 });
        }
        Ok((info.sha, files))
    }
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Returns the path to open: the GGUF file (the first part if it is split) or the folder of a
/// safetensors model.
fn place(repo: &Repo, commit: &str, chosen: &[String]) -> PathBuf {
    let snapshot = repo.snapshot(commit);
    match chosen.first() {
        Some(first) if first.ends_with(".gguf") => snapshot.join(first),
        _ => snapshot,
    }
}
