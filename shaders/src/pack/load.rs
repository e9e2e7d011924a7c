//! Loads packs from files. Every file is given by a plain name in the pack's own folder.

use std::cell::RefCell;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::Pack;
use super::manifest::File;
use super::shader;
use warploom_core::error::{Error, Result};

/// File name of the manifest.
pub const MANIFEST: &str = "pack.toml";
/// Maximum size of a manifest in bytes.
const MAX_MANIFEST: usize = 1 << 20;
/// Maximum number of folder entries that are examined.
const MAX_ENTRIES: usize = 1024;

impl Pack {
    /// Loads a pack from a folder: `pack.toml` and the shader that it names, or the only shader in
    /// the folder.
    ///
    /// # Errors
    /// Io if a file cannot be read; bad file or compile, with file and line, if its content is
    /// wrong.
    pub fn load(folder: impl AsRef<Path>) -> Result<Pack> {
        let folder = folder.as_ref();
        if folder.is_file() {
            let within = folder.parent().filter(|parent| parent.join(MANIFEST).is_file());
            let hint = within.map_or_else(String::new, |parent| match parent.as_os_str().len() {
                0 => "; its folder is `.`".into(),
                _ => format!("; its folder is {}", parent.display()),
            });
            return Err(Error::invalid(format!(
                "{}: a file, and a pack is the folder that holds {MANIFEST} and the shader{hint}",
                folder.display()
            )));
        }
        let text = read(folder, MANIFEST, MAX_MANIFEST)?;
        let shown = |name: &str| folder.join(name).display().to_string();
        let file = shown(MANIFEST);
        let manifest = File { name: &file, text: &text };
        let name = folder.canonicalize().ok();
        let name = name.as_deref().and_then(Path::file_name).map(|n| n.to_string_lossy());
        let only = |except: Option<&str>| only_shader(folder, except);
        let files = RefCell::new(vec![(folder.join(MANIFEST), blake3::hash(text.as_bytes()))]);
        let source = |name: &str| {
            let text = read(folder, name, shader::MAX_BYTES)?;
            files.borrow_mut().push((folder.join(name), blake3::hash(text.as_bytes())));
            Ok((shown(name), text))
        };
        let mut pack = Pack::assemble(&manifest, name.as_deref(), &only, &source)?;
        pack.folder = Some(folder.to_path_buf());
        pack.files = files.into_inner();
        pack.read_tuned(folder);
        Ok(pack)
    }

    /// Reloads the pack if one of its files has changed; returns whether it was reloaded. Kernels
    /// of earlier calls keep their shader.
    ///
    /// # Errors
    /// Same as [`Pack::load`]; the pack is then unchanged.
    pub fn reload(&mut self) -> Result<bool> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let same = |(path, hash): &(PathBuf, blake3::Hash)| {
            read_bytes(path, MAX_MANIFEST).is_ok_and(|bytes| blake3::hash(&bytes) == *hash)
        };
        if self.files.iter().all(same) {
            return Ok(false);
        }
        *self = Pack::load(folder.clone())?;
        Ok(true)
    }

    /// Builds a pack from texts, such as those of `include_str!`: the manifest, and the files that
    /// it names.
    ///
    /// # Errors
    /// Same as [`Pack::load`], and bad file if a file is named but not given.
    pub fn from_sources(manifest: &str, files: &[(&str, &str)]) -> Result<Pack> {
        let manifest = File { name: MANIFEST, text: manifest };
        let only = |except: Option<&str>| {
            let names = files.iter().map(|(name, _)| *name);
            let mut names = names.filter(|n| n.ends_with(".wgsl") && Some(*n) != except);
            match (names.next(), names.next()) {
                (Some(name), None) => Ok(name.to_string()),
                _ => Err(Error::bad_file(format!("{MANIFEST}: name the file as `shader`"))),
            }
        };
        let source = |name: &str| {
            let found = files.iter().find(|(other, _)| *other == name);
            let missing = || Error::bad_file(format!("{MANIFEST}: {name:?} is not given"));
            found.map(|(name, text)| (name.to_string(), text.to_string())).ok_or_else(missing)
        };
        Pack::assemble(&manifest, None, &only, &source)
    }
}

/// Returns the name of the only shader in a folder, apart from `except`, the reference's.
fn only_shader(folder: &Path, except: Option<&str>) -> Result<String> {
    let shown = folder.display();
    let entries =
        std::fs::read_dir(folder).map_err(|e| Error::io(format!("{shown}: cannot list it"), e))?;
    let names =
        entries.take(MAX_ENTRIES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".wgsl") && Some(name.as_str()) != except).collect();
    names.sort();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 => Err(Error::bad_file(format!("{shown}: there is no .wgsl file"))),
        _ => Err(Error::bad_file(format!(
            "{shown}: there are {}: name one as `shader` in {MANIFEST}",
            names.join(", ")
        ))),
    }
}

/// Reads a text file in a folder, by its plain name.
///
/// # Errors
/// Bad file if the name leaves the folder, or if the file is not regular, too large or not UTF-8;
/// io if it cannot be read.
fn read(folder: &Path, name: &str, most: usize) -> Result<String> {
    let path = inside(folder, name)?;
    let bytes = read_bytes(&path, most)?;
    String::from_utf8(bytes)
        .map_err(|e| Error::bad_file(format!("{}: not UTF-8: {}", path.display(), e.utf8_error())))
}

/// Returns the path of a file in a folder, if its name is plain and cannot lead out of the folder.
pub(super) fn inside(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut parts = Path::new(name).components();
    let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    if !plain || name.contains(['\0', '/', '\\', ':']) {
        return Err(Error::bad_file(format!(
            "{}: {name:?} is not the name of a file in the pack's own folder",
            folder.display()
        )));
    }
    Ok(folder.join(name))
}

/// Reads a regular file, not a link, of at most `most` bytes.
pub(super) fn read_bytes(path: &Path, most: usize) -> Result<Vec<u8>> {
    let shown = path.display();
    let failed = |e: std::io::Error| Error::io(format!("{shown}: cannot read it"), e);
    let about = std::fs::symlink_metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(Error::bad_file(format!("{shown}: not a plain file")));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() > most {
        false => Ok(bytes),
        true => Err(Error::bad_file(format!("{shown}: more than {most} bytes"))),
    }
}
