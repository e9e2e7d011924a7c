//! The picture of the user that a filter paints over.

use std::path::Path;

use image::{ImageReader, RgbaImage, imageops};
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::{Error, Result};

use super::scenes::Size;

/// Endings of files that are read as pictures.
pub(super) const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Returns whether a file is a picture, by its name.
pub fn is_picture(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// The pixels of a picture: red, green, blue and opacity from 0 to 1, row by row.
pub(super) struct Photo {
    pub(super) size: Size,
    pub(super) pixels: Vec<f32>,
}

impl Photo {
    /// Reads a picture, not larger than suits the device; the program's own without a path.
    ///
    /// # Errors
    /// Io or invalid, with the path, if the file cannot be read.
    pub(super) fn read(path: Option<&Path>, profile: &DeviceProfile) -> Result<Photo> {
        let longest = match profile.kind {
            DeviceKind::Software | DeviceKind::Cpu | DeviceKind::Null => 400,
            DeviceKind::Integrated => 1280,
            DeviceKind::Discrete => 2560,
        };
        let image = match path {
            Some(path) => open(path)?,
            None => own(400, 300),
        };
        let (width, height) = image.dimensions();
        let scale = f64::from(longest) / f64::from(width.max(height));
        let image = match scale < 1.0 {
            true => {
                let side = |side: u32| ((f64::from(side) * scale).round() as u32).max(1);
                imageops::thumbnail(&image, side(width), side(height))
            }
            false => image,
        };
        let (width, height) = image.dimensions();
        let pixels = image.into_raw().into_iter().map(|byte| f32::from(byte) / 255.0).collect();
        Ok(Photo { size: Size { width, height }, pixels })
    }
}

fn open(path: &Path) -> Result<RgbaImage> {
    let io = |e| Error::io(format!("cannot read {}", path.display()), e);
    let reader = ImageReader::open(path).map_err(io)?.with_guessed_format().map_err(io)?;
    let image = reader.decode().map_err(|e| {
        Error::invalid(format!("{} is not a PNG or JPEG picture: {e}", path.display()))
    })?;
    let image = image.into_rgba8();
    match image.width().min(image.height()) {
        0 => Err(Error::invalid(format!("{} has no pixels", path.display()))),
        _ => Ok(image),
    }
}

/// Draws hills under an evening sky, for those who have no picture at hand.
fn own(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, y| {
        let (x, y) = (x as f32 / width as f32, y as f32 / height as f32);
        // Fine grain, as of a photograph, for the filter to even out.
        let grain = ((x * 917.3 + y * 641.9).sin() * 43_758.547).fract() * 0.06;
        let sun = (x - 0.68).hypot((y - 0.36) * 0.75);
        let mut color = mix([0.98, 0.62, 0.38], [0.25, 0.24, 0.55], (0.75 - y * 1.3).max(0.0));
        if sun < 0.07 {
            color = [1.0, 0.93, 0.72];
        }
        for hill in 0..4 {
            let far = hill as f32;
            let crest = 0.5
                + far * 0.12
                + 0.05 * (x * (7.0 + far * 3.0) + far * 1.7).sin()
                + 0.02 * (x * (23.0 - far * 2.0) + far).sin();
            if y > crest {
                color = mix([0.47, 0.33, 0.52], [0.07, 0.10, 0.16], far / 3.0);
            }
        }
        let byte = |part: f32| ((part + grain).clamp(0.0, 1.0) * 255.0) as u8;
        image::Rgba([byte(color[0]), byte(color[1]), byte(color[2]), 255])
    })
}

fn mix(from: [f32; 3], to: [f32; 3], part: f32) -> [f32; 3] {
    std::array::from_fn(|i| from[i] + (to[i] - from[i]) * part.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_read_in_limits_and_other_files_are_named() {
        let folder = std::env::temp_dir().join(format!("warploom-photo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let profile = DeviceProfile::webgpu_floor("a CPU").with(|p| p.kind = DeviceKind::Cpu);
        let path = folder.join("A.PNG");
        assert!(is_picture(&path) && !is_picture(Path::new("a.gguf")));
        own(900, 300).save_with_format(&path, image::ImageFormat::Png).unwrap();
        let photo = Photo::read(Some(&path), &profile).unwrap();
        assert_eq!(photo.size, Size { width: 400, height: 133 });
        assert_eq!(photo.pixels.len(), 400 * 133 * 4);
        assert!(photo.pixels.iter().all(|part| (0.0..=1.0).contains(part)));
        std::fs::write(&path, "no picture").unwrap();
        let error = Photo::read(Some(&path), &profile).err().unwrap().to_string();
        assert!(error.contains("A.PNG is not a PNG or JPEG"), "{error}");
        let error = Photo::read(Some(&folder.join("b.png")), &profile).err().unwrap();
        assert!(error.is_io(), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
