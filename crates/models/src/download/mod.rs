//! Models by their Hugging Face name: from the hub into its own cache, or from the cache alone.
//!
//! [`Source`] is a name such as `org/name:Q4_K_M`; [`Hub`] finds the files that it means (`choose`),
//! transfers what the cache lacks (`transfer`) and lays it out as the hub's other clients do
//! (`cache`), so that they share it. A server is not trusted: names it gives cannot leave the
//! cache, a file appears under its name only when its checksum is right, and the token goes to
//! the hub's own address alone.

mod cache;
mod choose;
mod transfer;

#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use cache::Repo;
use transfer::{Client, Wanted};
use warploom_core::config;
use warploom_core::error::{Error, Result};

/// Longest organisation, name or revision.
const MAX_NAME: usize = 96;
/// Files of a repository that are looked at.
const MAX_FILES: usize = 100_000;

/// A model on the hub: `org/name`, `org/name:Q4_K_M` or `org/name:folder/file.gguf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    repo: String,
    what: Option<String>,
}

impl Source {
    /// Reads a name.
    ///
    /// # Errors
    /// Invalid, saying what a name looks like.
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
                "{text:?} is no name of a model on Hugging Face: org/name, org/name:Q4_K_M or \
                 org/name:file.gguf"
            )));
        }
        Ok(Source { repo: repo.to_owned(), what: what.map(str::to_owned) })
    }

    /// Whether a text can only be meant as a name on the hub, and not as a path: `org/name` or
    /// `org/name:what`, and nothing of that name is here.
    pub fn is_meant(text: &str) -> bool {
        let repo = text.split(':').next().unwrap_or_default();
        let file = [".gguf", ".safetensors", ".json"].iter().any(|end| repo.ends_with(end));
        !file && Source::parse(text).is_ok() && !Path::new(text).exists()
    }

    /// `org/name`.
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

/// Where the hub and its cache are, and how patient to be.
#[derive(Clone)]
pub struct HubOptions {
    /// The hub's address.
    pub endpoint: String,
    /// The folder of the cache, which the hub's other clients share.
    pub cache: PathBuf,
    /// Sent to `endpoint` and nowhere else.
    pub token: Option<String>,
    /// Nothing is asked of any server.
    pub offline: bool,
    /// To make a connection, and for the answer to begin.
    pub connect_timeout: Duration,
    /// A transfer that gives nothing for so long has stalled.
    pub stall_timeout: Duration,
    /// Attempts in a row that bring nothing.
    pub attempts: u32,
    /// Wait after the first of them; each later one waits twice as long, at most a minute.
    pub backoff: Duration,
}

impl HubOptions {
    /// What the environment says: `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`, `HF_TOKEN`,
    /// `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// Invalid where no variable says where the cache is and there is no home folder.
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
            .ok_or_else(|| Error::invalid("there is no home folder; HF_HOME says where models go"))?
            .join(".cache"),
    };
    Ok(folder.join("huggingface").join("hub"))
}

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A file begins, or goes on: its name, bytes that are here, bytes in all.
    File(&'a str, u64, u64),
    /// Bytes of this file that are here now.
    Bytes(u64),
    /// An attempt failed and another will follow after a while: why.
    Retry(&'a str, Duration),
}

/// A file of a repository, as the hub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RemoteFile {
    path: String,
    size: u64,
    /// The name of the blob: the sha256 of a large file, else what git calls it.
    blob: String,
    /// Of large files.
    sha256: Option<String>,
}

/// The hub.
#[derive(Debug)]
pub struct Hub {
    options: HubOptions,
}

impl Hub {
    /// The hub with these options.
    pub fn new(options: HubOptions) -> Hub {
        Hub { options }
    }

    /// Where a model is in the cache: a GGUF file (the first, of a split one) or a folder with
    /// safetensors. `None` where it is not there whole.
    ///
    /// # Errors
    /// Io, where the cache cannot be read; invalid where it holds several files that may be meant.
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

    /// Brings a model into the cache, as far as it is not there, and says where it is.
    ///
    /// # Errors
    /// Unsupported, when offline; invalid where the hub has no such model, file or access, with
    /// what there is; io, where the network or the disk fails; bad file, for a wrong checksum.
    pub fn fetch(
        &self,
        source: &Source,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf> {
        if self.options.offline {
            return match self.cached(source)? {
                Some(path) => Ok(path),
                None => Err(Error::unsupported(format!(
                    "{source} is not whole in {}, and offline nothing is fetched",
                    self.options.cache.display()
                ))),
            };
        }
        let client = Client::new(&self.options)?;
        let (commit, files) = self.list(&client, source, progress)?;
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

    /// One file, under its name in the snapshot.
    fn file(
        &self,
        client: &Client<'_>,
        repo: &Repo,
        commit: &str,
        file: &RemoteFile,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let blob = repo.blob(&file.blob);
        // Another process that fetches the same waits here, and then finds the file.
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

    /// The commit that the model's main branch is at, and its files.
    fn list(
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
            .map_err(|e| wrong("the answer is no list of files".into()).with_source(e))?;
        if !is_hex(&info.sha, 40) || info.siblings.len() > MAX_FILES {
            return Err(wrong(format!("commit {:.80?}, {} files", info.sha, info.siblings.len())));
        }
        let mut files = Vec::with_capacity(info.siblings.len());
        for sibling in info.siblings {
            let sha256 = sibling.lfs.as_ref().map(|lfs| lfs.sha256.to_ascii_lowercase());
            let blob = sha256.clone().or(sibling.blob_id);
            let size = sibling.lfs.map(|lfs| lfs.size).or(sibling.size);
            // What is not told in full can be left where it is.
            let (Some(blob), Some(size)) = (blob, size) else { continue };
            let named = if sha256.is_some() { is_hex(&blob, 64) } else { is_hex(&blob, 40) };
            if !named || !cache::is_safe(&sibling.rfilename) {
                return Err(wrong(format!(
                    "file {:.120?} with id {blob:.80?} is none that a cache can hold",
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

/// What is opened: the file, or the folder of a model of several that are no split GGUF file.
fn place(repo: &Repo, commit: &str, chosen: &[String]) -> PathBuf {
    let snapshot = repo.snapshot(commit);
    match chosen.first() {
        Some(first) if first.ends_with(".gguf") => snapshot.join(first),
        _ => snapshot,
    }
}
