//! Checks the output path: it must not be an input, nor anything other than a regular file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::huggingface::Folder;
use warploom::{Error, Result};

/// Returns the path to write: `output` itself, or its target if it is a link.
///
/// # Errors
/// Invalid if the file exists and `replace` is false, if it is an input, or if it is not a regular
/// file (for example a folder, a device, a pipe or a dangling link); io if it cannot be examined.
pub(super) fn of(input: &Path, output: &Path, replace: bool) -> Result<PathBuf> {
    let shown = output.display();
    let failed = |e| Error::io(format!("{shown}: cannot look at it"), e);
    let is_link = match fs::symlink_metadata(output) {
        Ok(there) => there.is_symlink(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(output.to_owned()),
        Err(e) => return Err(failed(e)),
    };
    match fs::metadata(output) {
        Ok(there) if there.is_file() => {}
        Ok(there) => {
            let what = if there.is_dir() { "a folder" } else { "no plain file" };
            return Err(Error::invalid(format!("{shown}: is {what}, which is not replaced")));
        }
        Err(e) if is_link && e.kind() == ErrorKind::NotFound => {
            return Err(Error::invalid(format!("{shown}: is a link that leads nowhere")));
        }
        Err(e) => return Err(failed(e)),
    }
    let place = if is_link { output.canonicalize().map_err(failed)? } else { output.to_owned() };
    let there = identity(&place);
    if let Some(read) = inputs(input).into_iter().find(|file| identity(file) == there) {
        let read = read.display();
        return Err(Error::invalid(format!("{shown}: is the input {read}, which is not replaced")));
    }
    match replace {
        true => Ok(place),
        false => Err(Error::invalid(format!("{shown}: already exists"))),
    }
}

/// Returns the files that a model may be read from: in a folder, all files with a suitable
/// extension; for a split model, all parts.
fn inputs(input: &Path) -> Vec<PathBuf> {
    let is_folder = Folder::is_at(input);
    let name = input.file_name().unwrap_or_default().to_string_lossy();
    let part = name.split_once("-00001-of-");
    let is_read = |path: &Path| match (is_folder, part) {
        (true, _) => {
            let ending = path.extension().unwrap_or_default();
            ["json", "safetensors", "jinja"].iter().any(|known| ending == *known)
        }
        (false, Some((before, behind))) => {
            let other = path.file_name().unwrap_or_default().to_string_lossy();
            other.len() == name.len() && other.starts_with(before) && other.ends_with(behind)
        }
        (false, None) => false,
    };
    let folder = match input.is_dir() {
        true => input,
        false => input.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")),
    };
    let beside = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = beside.filter(|path| is_read(path)).collect();
    all.push(input.to_owned());
    all
}

/// Returns the identity of a file: equal for two paths only if they lead to the same file.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::super::test_folder as folder;
    use super::*;

    #[test]
    fn inputs_are_not_replaced_by_any_name() {
        let folder = folder("place");
        let file = |name: &str| {
            fs::write(folder.join(name), name).unwrap();
            folder.join(name)
        };
        let refused = |input: &Path, output: &Path| {
            let error = of(input, output, true).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains("is the input"), "{error}");
        };
        let (whole, other) = (file("in.gguf"), file("out.gguf"));
        refused(&whole, &whole);
        refused(&whole, &folder.join("./in.gguf"));
        assert_eq!(of(&whole, &other, true).unwrap(), other);
        assert!(of(&whole, &other, false).unwrap_err().to_string().contains("already exists"));
        let new = folder.join("new.gguf");
        assert_eq!(of(&whole, &new, false).unwrap(), new);

        let first = file("part-00001-of-00002.gguf");
        refused(&first, &file("part-00002-of-00002.gguf"));
        assert!(of(&first, &file("part-00002-of-00003.gguf"), true).is_ok());

        let weights = file("model.safetensors");
        refused(&folder, &weights);
        refused(&file("config.json"), &weights);
        assert!(of(&folder, &other, true).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = folder("no-file");
        let input = folder.join("in.gguf");
        fs::write(&input, "").unwrap();
        let error = of(&input, &folder, true).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("is a folder"), "{error}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            let error = of(&input, Path::new("/dev/null"), true).unwrap_err();
            assert!(error.to_string().contains("no plain file"), "{error}");
            let (link, target) = (folder.join("link"), folder.join("target"));
            symlink(&target, &link).unwrap();
            for replace in [true, false] {
                let error = of(&input, &link, replace).unwrap_err();
                assert!(error.to_string().contains("leads nowhere"), "{error}");
            }
            // The target of a link is written, and the link is kept.
            fs::write(&target, "").unwrap();
            assert_eq!(of(&input, &link, true).unwrap(), target.canonicalize().unwrap());
            assert!(of(&input, &link, false).is_err());
            let input_link = folder.join("in-link");
            symlink(&input, &input_link).unwrap();
            let error = of(&input, &input_link, true).unwrap_err();
            assert!(error.to_string().contains("is the input"), "{error}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
