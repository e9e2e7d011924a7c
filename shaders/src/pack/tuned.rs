//! The fastest constants found, stored per device in the pack's folder.
//!
//! They are only hints: a file that is unreadable, belongs to a different shader or names constants
//! that do not exist is ignored.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Pack;
use super::load::read_bytes;
use super::shader::Shader;
use warploom_core::error::{Error, Result};

/// The file's name.
const FILE: &str = "tuned.json";
/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 1 << 18;
/// Maximum number of devices that are remembered.
const MAX_DEVICES: usize = 256;

/// Constants, and the workgroup size that they result in.
pub(super) type Tuned = (BTreeMap<String, f64>, [u32; 3]);

#[derive(Default, Serialize, Deserialize)]
struct File {
    /// Hash of the shader that was timed.
    shader: String,
    /// Constants for each device.
    devices: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Pack {
    /// Stores these constants for a device in the pack's folder; [`Pack::call_on`] uses them for
    /// the same device name.
    ///
    /// # Errors
    /// Invalid if the pack has no folder or the manifest does not tune a constant; compile or
    /// invalid if the shader is not valid with the values; io if the file cannot be written.
    pub fn keep_tuned(&mut self, device: &str, constants: &BTreeMap<String, f64>) -> Result<()> {
        let folder = self.folder.clone();
        let folder = folder.ok_or_else(|| Error::invalid("the pack is from no folder"))?;
        let all = self.with_tuned(constants)?;
        self.tuned.insert(device.into(), all);
        let own = |(constants, _): &Tuned| {
            let own = constants.iter().filter(|(name, _)| self.tune.contains_key(*name));
            own.map(|(name, value)| (name.clone(), *value)).collect()
        };
        let devices = self.tuned.iter().map(|(name, tuned)| (name.clone(), own(tuned))).collect();
        let file = File { shader: hash(&self.shader), devices };
        let path = folder.join(FILE);
        let failed =
            |e: std::io::Error| Error::io(format!("{}: cannot write it", path.display()), e);
        let text = serde_json::to_vec_pretty(&file)
            .map_err(|e| Error::invalid(format!("{FILE} cannot be written: {e}")))?;
        // Atomic replacement, since other processes may read the file meanwhile.
        let part = folder.join(format!(".{FILE}.{}", std::process::id()));
        std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &path)).map_err(failed)
    }

    /// Reads the constants stored for this shader; a file that does not fit is ignored.
    pub(super) fn read_tuned(&mut self, folder: &Path) {
        let path = folder.join(FILE);
        if !path.exists() {
            return;
        }
        let file = read_bytes(&path, MAX_BYTES).and_then(|bytes| {
            serde_json::from_slice::<File>(&bytes).map_err(|e| Error::bad_file(e.to_string()))
        });
        let file = match file {
            Ok(file) if file.shader == hash(&self.shader) => file,
            Ok(_) => return tracing::info!("{}: for another shader, not used", path.display()),
            Err(error) => return tracing::warn!("{}: not taken: {error}", path.display()),
        };
        for (device, constants) in file.devices.into_iter().take(MAX_DEVICES) {
            match self.with_tuned(&constants) {
                Ok(tuned) => _ = self.tuned.insert(device, tuned),
                Err(error) => tracing::warn!("{}: {device}: {error}", path.display()),
            }
        }
    }

    /// Returns the manifest's constants overridden by these, and the workgroup size.
    fn with_tuned(&self, constants: &BTreeMap<String, f64>) -> Result<Tuned> {
        if let Some(name) = constants.keys().find(|name| !self.tune.contains_key(*name)) {
            return Err(Error::invalid(format!("the manifest does not tune {name}")));
        }
        let mut all = self.constants.clone();
        all.extend(constants.iter().map(|(name, value)| (name.clone(), *value)));
        let workgroup = self.shader.workgroup(&all)?;
        Ok((all, workgroup))
    }
}

fn hash(shader: &Shader) -> String {
    blake3::hash(shader.text.as_bytes()).to_hex().to_string()
}
