//! Looks up catalogue rows by kernel name.

use super::catalogue::{CATALOGUE, Entry};
use warploom_core::base::Format;

/// Returns every weight format for which some `*` family has a kernel.
pub fn family_formats() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().chain(Format::KEPT)
}

/// Returns the full name of a family's kernel for a format: `matvec_*` and `Q4K` yield
/// `matvec_q4_k`.
pub fn family_name(family: &str, format: Format) -> String {
    family.replace('*', format.name())
}

/// Returns the catalogue row of a kernel; if the row is a family, also the kernel's weight format.
pub fn find(name: &str) -> Option<(&'static Entry, Option<Format>)> {
    CATALOGUE.iter().find_map(|entry| match entry.name.strip_suffix('*') {
        None => (entry.name == name).then_some((entry, None)),
        Some(prefix) => {
            let format = name.strip_prefix(prefix)?;
            let format = entry.formats().find(|f| f.name() == format)?;
            Some((entry, Some(format)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, entry) in CATALOGUE.iter().enumerate() {
            assert!(CATALOGUE[..i].iter().all(|other| other.name != entry.name), "{}", entry.name);
            let name = family_name(entry.name, Format::Q4K);
            let (found, format) = find(&name).unwrap();
            assert_eq!(found.name, entry.name);
            assert_eq!(format.is_some(), entry.name.ends_with('*'));
        }
        assert!(find("matvec_q9_9").is_none());
    }
}
