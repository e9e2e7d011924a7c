//! Device profiles as JSON files, and the built-in ones.

use super::profile::DeviceProfile;
use warploom_core::error::{Error, Result};

/// Name and JSON text of each built-in profile; `profiles/README.md` lists the sources.
const KNOWN: [(&str, &str); 8] = [
    ("apple-m2", include_str!("profiles/apple-m2.json")),
    ("radeon-rx-7900-xtx", include_str!("profiles/radeon-rx-7900-xtx.json")),
    ("intel-iris-xe", include_str!("profiles/intel-iris-xe.json")),
    ("adreno-740", include_str!("profiles/adreno-740.json")),
    ("browser-floor", include_str!("profiles/browser-floor.json")),
    ("nvidia-h200", include_str!("profiles/nvidia-h200.json")),
    ("lavapipe", include_str!("profiles/lavapipe.json")),
    ("cpu-avx512", include_str!("profiles/cpu-avx512.json")),
];

/// Maximum size of a profile file in bytes.
const MAX_BYTES: usize = 64 << 10;

impl DeviceProfile {
    /// Iterates over the names of the built-in profiles.
    pub fn known_names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// Returns the built-in profile with this name.
    ///
    /// # Errors
    /// Invalid if the name is unknown; the error lists the known names.
    pub fn known(name: &str) -> Result<DeviceProfile> {
        let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = DeviceProfile::known_names().collect();
            let names = names.join(", ");
            return Err(Error::invalid(format!("no profile {name:?}; there is {names}")));
        };
        DeviceProfile::from_json(text.as_bytes())
    }

    /// Returns the profile as JSON text.
    pub fn to_json(&self) -> String {
        // Only numbers, flags and strings, so serialisation cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Parses a profile from JSON.
    ///
    /// # Errors
    /// Bad file if the text is too large or not JSON, or if a field is missing, has the wrong type,
    /// or fails [`DeviceProfile::check`]; the message names the field.
    pub fn from_json(bytes: &[u8]) -> Result<DeviceProfile> {
        let bad = |what: String| Error::bad_file(format!("profile: {what}"));
        if bytes.len() > MAX_BYTES {
            return Err(bad(format!("{} bytes, at most {MAX_BYTES}", bytes.len())));
        }
        let profile: DeviceProfile =
            serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
        profile.check().map_err(bad)?;
        Ok(profile)
    }

    /// Checks the values that planning relies on: no limit may be zero, the binding alignment must
    /// be a power of two up to 65,536, the calibration valid, and the provider's name not empty.
    ///
    /// # Errors
    /// A message with the field and its value.
    pub fn check(&self) -> Result<(), String> {
        let least = [
            ("max_threads_per_workgroup", u64::from(self.max_threads_per_workgroup)),
            ("workgroup_memory_bytes", u64::from(self.workgroup_memory_bytes)),
            ("max_workgroups_per_dim", u64::from(self.max_workgroups_per_dim)),
            ("max_storage_buffers", u64::from(self.max_storage_buffers)),
            ("max_binding_bytes", self.max_binding_bytes),
            ("max_buffer_bytes", self.max_buffer_bytes),
        ];
        if let Some((field, _)) = least.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{field} is 0"));
        }
        let alignment = self.binding_alignment;
        if !alignment.is_power_of_two() || alignment > 1 << 16 {
            return Err(format!("binding_alignment is {alignment}, not a power of two to 65536"));
        }
        self.calibration.check()?;
        match self.provider.is_empty() {
            true => Err("provider is empty".into()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Calibration;

    #[test]
    fn every_known_profile_reads_and_writes() {
        for name in DeviceProfile::known_names() {
            let profile = DeviceProfile::known(name).unwrap();
            assert_eq!(DeviceProfile::from_json(profile.to_json().as_bytes()).unwrap(), profile);
            // The guaranteed minimum of WebGPU. Every supported device reaches it.
            let floor = DeviceProfile::webgpu_floor("");
            assert!(profile.max_storage_buffers >= floor.max_storage_buffers, "{name}");
            assert!(profile.max_binding_bytes >= floor.max_binding_bytes, "{name}");
            assert!(profile.max_buffer_bytes >= floor.max_buffer_bytes, "{name}");
            assert!(profile.has_subgroups == (profile.subgroup_max > 0), "{name}");
        }
        let floor = DeviceProfile::known("browser-floor").unwrap();
        let name = floor.name.clone();
        let driver = floor.driver.clone();
        assert_eq!(floor, DeviceProfile { driver, ..DeviceProfile::webgpu_floor(&name) });
        let error = DeviceProfile::known("m3").unwrap_err().to_string();
        assert!(error.contains("apple-m2") && error.contains("cpu-avx512"), "{error}");
    }

    #[test]
    fn bad_profiles_name_the_field() {
        let text = DeviceProfile::known("lavapipe").unwrap().to_json();
        let rows = [
            ("\"index\": 0,", "", "index"),
            ("\"kind\": \"software\"", "\"kind\": \"abacus\"", "abacus"),
            ("\"max_storage_buffers\": 32", "\"max_storage_buffers\": 0", "max_storage_buffers"),
            ("\"binding_alignment\": 64", "\"binding_alignment\": 48", "48"),
            ("\"provider\": \"webgpu\"", "\"provider\": \"\"", "provider"),
            (
                "\"index\": 0,",
                "\"index\": 0, \"calibration\": {\"launch_seconds\": 0.0},",
                "calibration.launch_seconds is 0",
            ),
            (
                "\"index\": 0,",
                "\"index\": 0, \"calibration\": {\"gemv_inline_quant_share\": 1.5},",
                "gemv_inline_quant_share is 1.5",
            ),
            (
                "\"index\": 0,",
                "\"index\": 0, \"calibration\": {\"gemv_unrolled\": 0},",
                "gemv_unrolled is 0, not 1 to 16",
            ),
        ];
        for (from, to, words) in rows {
            let bad = text.replace(from, to);
            assert_ne!(bad, text);
            let error = DeviceProfile::from_json(bad.as_bytes()).unwrap_err();
            assert!(error.is_bad_file() && error.to_string().contains(words), "{error}");
        }
    }

    /// Files of earlier versions lack some capabilities and the calibration; these have their
    /// defaults.
    #[test]
    fn older_files_get_the_defaults() {
        let new = DeviceProfile::known("nvidia-h200").unwrap().with_cuda_features();
        let text = new.to_json();
        assert_eq!(DeviceProfile::from_json(text.as_bytes()).unwrap(), new);
        let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = file.as_object_mut().unwrap();
        let added = [
            "has_launch_overlap",
            "has_int8_mma",
            "has_device_scope_barrier",
            "supports_gemm_library",
            "calibration",
        ];
        for field in added {
            assert!(fields.remove(field).is_some(), "{field} is not written");
        }
        let old = DeviceProfile::from_json(file.to_string().as_bytes()).unwrap();
        assert!(!old.has_launch_overlap && !old.has_int8_mma && !old.supports_gemm_library);
        assert_eq!(old.calibration, Calibration::new());
        // A file with one field leaves the others at their defaults.
        file["calibration"] = serde_json::json!({"launch_seconds": 3e-6});
        let one = DeviceProfile::from_json(file.to_string().as_bytes()).unwrap();
        let expected = Calibration { launch_seconds: Some(3e-6), ..Calibration::new() };
        assert_eq!(one.calibration, expected);
        // A profile without these features is as short as before they were added.
        let floor = DeviceProfile::webgpu_floor("floor").to_json();
        assert!(added.iter().all(|field| !floor.contains(field)), "{floor}");
    }
}
