//! Joins split models, as `llama-gguf-split` writes them: the first file has the metadata of the
//! model, each file has some of the tensors, and three keys in each file identify the part.

use std::sync::Arc;

use super::{Gguf, TensorInfo};
use warploom_core::error::{Error, Result};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Identifies a part of a split model.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Part number, from 0.
    number: u32,
    /// Number of parts, 2 or more.
    count: u32,
    /// Number of tensors of the whole model.
    tensors: u64,
}

impl Place {
    /// Reads the metadata of a file; `None` if it is not part of a split model.
    fn of(file: &Gguf) -> Result<Option<Place>> {
        let Some(count) = file.find_u32(COUNT)?.filter(|count| *count > 1) else {
            return Ok(None);
        };
        let number = file.get_u32(NUMBER)?;
        if number >= count {
            let text = format!("{}: {NUMBER}: {number} of {count} parts", file.name());
            return Err(Error::bad_file(text));
        }
        Ok(Some(Place { number, count, tensors: file.get_u64(TENSORS)? }))
    }
}

impl Gguf {
    /// Returns the number of files that the model is split into, according to its metadata; 1 if it
    /// is not split.
    ///
    /// # Errors
    /// Bad file, naming the key, if split keys are missing or inconsistent.
    pub fn split_count(&self) -> Result<u32> {
        Ok(Place::of(self)?.map_or(1, |place| place.count))
    }

    /// Returns whether all tensors of the model are present; false for a single part of several.
    ///
    /// # Errors
    /// Same as [`Gguf::split_count`].
    pub fn is_whole(&self) -> Result<bool> {
        Ok(self.split_count()? as usize == 1 + self.rest.len())
    }

    /// Joins the parts of a model, given in order. The result has the metadata of the first part
    /// and the tensors of all parts.
    ///
    /// # Errors
    /// Invalid if there are no parts; bad file, naming the part, if one is missing, out of order or
    /// from a different model, or if a tensor occurs twice. A part from a different model with the
    /// same tensor names and counts is not detected.
    pub fn join(parts: Vec<Gguf>) -> Result<Gguf> {
        let mut parts = parts.into_iter();
        let mut first = parts.next().ok_or_else(|| Error::invalid("no parts of a model"))?;
        let Some(whole) = Place::of(&first)? else {
            return match parts.next() {
                None => Ok(first),
                Some(part) => Err(Error::bad_file(format!(
                    "{}: {COUNT}: {} is a whole file and has no other parts",
                    part.name(),
                    first.name()
                ))),
            };
        };
        let mut number = 0;
        check(&first, &first, Some(whole), Place { number, ..whole })?;
        for part in parts {
            number += 1;
            check(&first, &part, Place::of(&part)?, Place { number, ..whole })?;
            if let Some(twice) = part.tensors().find(|t| first.find_tensor(t.name()).is_some()) {
                return Err(Error::bad_file(format!(
                    "{}: tensor `{}` at byte {}: another part of {} has it too",
                    part.name(),
                    twice.name(),
                    twice.file_offset(),
                    first.name()
                )));
            }
            first.rest.push(part);
        }
        if number + 1 != whole.count {
            return Err(Error::bad_file(format!(
                "{}: {COUNT}: {} parts, only the first {} are here",
                first.name(),
                whole.count,
                number + 1
            )));
        }
        let found = first.tensor_count() as u64;
        if found != whole.tensors {
            return Err(Error::bad_file(format!(
                "{}: {TENSORS}: {}, its {} parts have {found} together: one of them is of another \
                 model",
                first.name(),
                whole.tensors,
                whole.count
            )));
        }
        Ok(first)
    }

    /// Returns an iterator over this file and the other parts joined to it.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Gguf> {
        std::iter::once(self).chain(&self.rest)
    }

    /// Returns the part that contains a tensor, or `None` if it belongs to a different file.
    pub(super) fn part_of(&self, info: &TensorInfo) -> Option<&Gguf> {
        self.parts().find(|part| Arc::ptr_eq(&part.name, &info.file))
    }
}

/// Checks that `part`, whose metadata is `found`, is the part `want` of the model that begins with
/// `first`.
fn check(first: &Gguf, part: &Gguf, found: Option<Place>, want: Place) -> Result<()> {
    let wrong = |key: &str, text: String| {
        Err(Error::bad_file(format!(
            "{}: {key}: {text}: not part {} of {} of {}",
            part.name(),
            want.number + 1,
            want.count,
            first.name()
        )))
    };
    let Some(found) = found else { return wrong(COUNT, "absent or 1".into()) };
    if found.count != want.count {
        return wrong(COUNT, format!("{}", found.count));
    }
    if found.number != want.number {
        return wrong(NUMBER, format!("{} (from 0)", found.number));
    }
    if found.tensors != want.tensors {
        let text = format!("{}, not {} as in the first", found.tensors, want.tensors);
        return wrong(TENSORS, text);
    }
    Ok(())
}

/// Splits a name such as `name-00002-of-00003.gguf` into `name`, 2 and 3.
#[cfg(not(target_arch = "wasm32"))]
fn numbers(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        if digits { text.parse().ok() } else { None }
    };
    Some((stem, number(part)?, number(count)?))
}

/// Opens the other parts of a split model, which are in the folder of the first, and returns them
/// in order; empty if the model is not split.
///
/// # Errors
/// Bad file if `first` is not the first part, or if its name does not match its metadata. Also the
/// errors of `open`, naming the part.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn others(
    path: &std::path::Path,
    first: &Gguf,
    mut open: impl FnMut(&std::path::Path) -> Result<Gguf>,
) -> Result<Vec<Gguf>> {
    let Some(place) = Place::of(first)? else { return Ok(Vec::new()) };
    let named = path.file_name().and_then(|name| numbers(name.to_str()?));
    let Some((stem, number, count)) = named else {
        return Err(Error::bad_file(format!(
            "{}: {COUNT}: one of {} parts, whose name must end in -{:05}-of-{:05}.gguf",
            first.name(),
            place.count,
            place.number + 1,
            place.count
        )));
    };
    if (number, count) != (place.number + 1, place.count) {
        return Err(Error::bad_file(format!(
            "{}: {NUMBER}: it is part {} of {}, its name says {number} of {count}",
            first.name(),
            place.number + 1,
            place.count
        )));
    }
    let part = |number: u32| path.with_file_name(format!("{stem}-{number:05}-of-{count:05}.gguf"));
    if place.number != 0 {
        return Err(Error::bad_file(format!(
            "{}: {NUMBER}: it is part {number} of {count}; open the first, {}",
            first.name(),
            part(1).display()
        )));
    }
    let missing = |number: u32| format!("part {number} of {count} of {}", first.name());
    (2..=count).map(|number| open(&part(number)).map_err(|e| e.context(missing(number)))).collect()
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
