//! The kernel packs in the program: those of the pictures, and examples.

use std::path::Path;

use warploom::kernel::pack::Pack;

use crate::history;

/// A pack as text.
#[derive(Clone, Copy, Debug)]
pub struct PackText {
    /// Its name.
    pub name: &'static str,
    /// Its manifest.
    pub manifest: &'static str,
    /// Name and text of its shader.
    pub shader: (&'static str, &'static str),
    /// Name and text of its reference, if it has one.
    pub reference: Option<(&'static str, &'static str)>,
    /// Sizes with which it is timed.
    pub sizes: &'static [(&'static str, f64)],
}

macro_rules! pack {
    (@reference $folder:literal, $name:literal) => {
        None
    };
    (@reference $folder:literal, $name:literal, $file:literal) => {
        Some(($file, include_str!(concat!("../", $folder, "/", $name, "/", $file))))
    };
    ($folder:literal, $name:literal, $sizes:expr $(, $file:literal)?) => {
        PackText {
            name: $name,
            manifest: include_str!(concat!("../", $folder, "/", $name, "/pack.toml")),
            shader: (
                concat!($name, ".wgsl"),
                include_str!(concat!("../", $folder, "/", $name, "/", $name, ".wgsl")),
            ),
            reference: pack!(@reference $folder, $name $(, $file)?),
            sizes: $sizes,
        }
    };
}

/// Game of Life.
pub const LIFE: PackText = pack!("packs", "life", &[("width", 2048.0), ("height", 2048.0)]);
/// The Mandelbrot set.
pub const MANDELBROT: PackText =
    pack!("packs", "mandelbrot", &[("width", 512.0), ("height", 384.0), ("steps", 64.0)]);
/// Bodies that attract each other.
pub const NBODY: PackText = pack!("../examples/packs", "nbody", &[("n", 4096.0)]);
/// Counts the birds in the cells of a grid.
pub const FLOCK_COUNT: PackText =
    pack!("packs", "flock-count", &[("n", 1_048_576.0), ("side", 256.0)]);
/// Where the birds of each cell end.
pub const FLOCK_ENDS: PackText = pack!("packs", "flock-ends", &[("side", 256.0)]);
/// Sorts birds by cell.
pub const FLOCK_SORT: PackText =
    pack!("packs", "flock-sort", &[("n", 1_048_576.0), ("side", 256.0)]);
/// A flock.
pub const BOIDS: PackText = pack!("packs", "boids", &[("n", 65_536.0), ("side", 64.0)]);
/// Moves a fluid.
pub const ADVECT: PackText =
    pack!("packs", "fluid-advect", &[("width", 1024.0), ("height", 1024.0)]);
/// Divergence of a fluid.
pub const DIVERGENCE: PackText =
    pack!("packs", "fluid-divergence", &[("width", 1024.0), ("height", 1024.0)]);
/// Pressure of a fluid.
pub const PRESSURE: PackText =
    pack!("packs", "fluid-pressure", &[("width", 1024.0), ("height", 1024.0)]);
/// Subtracts the slope of the pressure.
pub const PROJECT: PackText =
    pack!("packs", "fluid-project", &[("width", 1024.0), ("height", 1024.0)]);
/// Paints over a picture.
pub const PAINT: PackText = pack!("packs", "paint", &[("width", 1024.0), ("height", 1024.0)]);
/// A blur, with a reference.
pub const BLUR: PackText =
    pack!("../examples/packs", "blur", &[("width", 1024.0), ("height", 1024.0)], "reference.wgsl");
/// Prefix sums in a workgroup.
pub const SCAN: PackText = pack!("../examples/packs", "scan", &[("n", 256.0)]);

/// All packs, in the order of lists.
pub const ALL: [PackText; 14] = [
    BLUR,
    PAINT,
    LIFE,
    MANDELBROT,
    NBODY,
    BOIDS,
    FLOCK_COUNT,
    FLOCK_ENDS,
    FLOCK_SORT,
    ADVECT,
    DIVERGENCE,
    PRESSURE,
    PROJECT,
    SCAN,
];

impl PackText {
    /// Loads the pack.
    ///
    /// # Errors
    /// Those of [`Pack::from_sources`]; none as the packs are.
    pub fn load(&self) -> warploom::Result<Pack> {
        Texts::of(self).load()
    }
}

/// The files of a pack that the user may change.
#[derive(Clone, Debug, PartialEq)]
pub struct Texts {
    /// Name of the pack.
    pub name: String,
    /// The manifest.
    pub manifest: String,
    /// Name and text of the shader.
    pub shader: (String, String),
    /// Name and text of the reference, if there is one.
    pub reference: Option<(String, String)>,
    /// Sizes with which it is timed.
    pub sizes: &'static [(&'static str, f64)],
}

impl Texts {
    /// Returns the files of a pack of the program.
    pub fn of(pack: &PackText) -> Texts {
        let own = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
        Texts {
            name: pack.name.to_owned(),
            manifest: pack.manifest.to_owned(),
            shader: own(pack.shader),
            reference: pack.reference.map(own),
            sizes: pack.sizes,
        }
    }

    fn files(&self) -> Vec<(&str, &str)> {
        let mut files = vec![("pack.toml", self.manifest.as_str())];
        files.push((&self.shader.0, &self.shader.1));
        files.extend(self.reference.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        files
    }

    /// Returns the files of a pack with the changes of the user that are kept in a folder.
    ///
    /// # Errors
    /// Io, or invalid, with the path, if a file that is there cannot be read.
    pub fn kept(pack: &PackText, folder: &Path) -> warploom::Result<Texts> {
        let mut texts = Texts::of(pack);
        let read = |name: &str, text: &mut String| {
            let path = folder.join(pack.name).join(name);
            if path.exists() {
                *text = history::read_text(&path)?;
            }
            Ok(())
        };
        read("pack.toml", &mut texts.manifest)?;
        read(pack.shader.0, &mut texts.shader.1)?;
        texts.reference.as_mut().map_or(Ok(()), |(name, text)| read(name, text))?;
        Ok(texts)
    }

    /// Keeps the files in a folder, as a pack; or deletes them there if they are those of the program.
    /// Returns whether they are kept.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn keep(&self, folder: &Path) -> warploom::Result<bool> {
        let own = ALL.iter().find(|pack| pack.name == self.name).map(Texts::of);
        let folder = folder.join(&self.name);
        if own.as_ref() == Some(self) {
            for (name, _) in self.files() {
                let _ = std::fs::remove_file(folder.join(name));
            }
            let _ = std::fs::remove_dir(folder);
            return Ok(false);
        }
        for (name, text) in self.files() {
            history::write(&folder.join(name), text)?;
        }
        Ok(true)
    }

    /// Loads the pack.
    ///
    /// # Errors
    /// Those of [`Pack::from_sources`].
    pub fn load(&self) -> warploom::Result<Pack> {
        let mut files = vec![(self.shader.0.as_str(), self.shader.1.as_str())];
        files.extend(self.reference.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        Pack::from_sources(&named(&self.name, &self.manifest), &files)
    }
}

/// Returns a manifest with a name, which a folder would give it.
pub fn named(name: &str, manifest: &str) -> String {
    let has_name = manifest
        .lines()
        .any(|line| line.split_once('=').is_some_and(|(key, _)| key.trim() == "name"));
    match has_name {
        true => manifest.to_owned(),
        // At the end of the first line, so that the lines keep their numbers.
        false => match manifest.split_once('\n') {
            Some((first, rest))
                if first.trim_start().starts_with('#') || first.trim().is_empty() =>
            {
                format!("name = {name:?} {first}\n{rest}")
            }
            _ => format!("name = {name:?}\n{manifest}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom_testkit::pack::{Outcome, cases, in_interpreter};

    /// As `warploom kernel check` does it, in the interpreter with all of its checks.
    #[test]
    fn every_pack_is_right() {
        for text in ALL {
            let pack = text.load().unwrap();
            assert_eq!(pack.name(), text.name);
            let cases = cases(&pack).unwrap();
            assert!(!cases.is_empty());
            for case in cases {
                let (row, _) = in_interpreter(&pack, &case);
                let right = matches!(row.outcome, Outcome::Right { elements, .. } if elements > 0);
                assert!(right, "{}: {:?}", text.name, row);
            }
        }
    }

    #[test]
    fn changes_are_kept_as_a_pack_until_they_are_undone() {
        let folder = std::env::temp_dir().join(format!("warploom-kept-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let mut texts = Texts::kept(&BLUR, &folder).unwrap();
        assert_eq!(texts, Texts::of(&BLUR));
        assert!(!texts.keep(&folder).unwrap());
        texts.shader.1.push_str("\n// mine\n");
        assert!(texts.keep(&folder).unwrap());
        assert_eq!(Texts::kept(&BLUR, &folder).unwrap(), texts);
        // The command takes the same folder.
        assert_eq!(Pack::load(folder.join("blur")).unwrap().name(), "blur");
        assert!(!Texts::of(&BLUR).keep(&folder).unwrap());
        assert!(!folder.join("blur").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_keeps_the_numbers_of_lines() {
        assert_eq!(named("a", "# why\nb = 1"), "name = \"a\" # why\nb = 1");
        assert_eq!(named("a", "name = \"c\"\n"), "name = \"c\"\n");
    }
}
