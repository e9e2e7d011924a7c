//! Settings, in one JSON file.

use std::fs;
use std::path::{Path, PathBuf};

use eframe::egui::ThemePreference;
use serde::{Deserialize, Serialize};
use warploom::{Error, Result};
use warploom_llm::Sampling;

use crate::history;

/// Number of files in the list of recent models.
const RECENT: usize = 8;

/// Light, dark, or that of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// That of the system.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl From<Theme> for ThemePreference {
    fn from(theme: Theme) -> ThemePreference {
        match theme {
            Theme::System => ThemePreference::System,
            Theme::Light => ThemePreference::Light,
            Theme::Dark => ThemePreference::Dark,
        }
    }
}

/// A system message and its sampling, under a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// The system message; empty for none.
    pub system: String,
    /// Randomness of answers.
    pub temperature: f32,
}

impl Preset {
    /// Returns the presets of the program.
    pub fn builtin() -> Vec<Preset> {
        let preset = |name: &str, system: &str, temperature| Preset {
            name: name.to_owned(),
            system: system.to_owned(),
            temperature,
        };
        vec![
            preset("Plain", "", Sampling::default().temperature),
            preset("Facts", "Answer briefly and exactly. If you are not sure, say so.", 0.0),
            preset(
                "Code",
                "You are a careful programmer. Answer with complete, correct code in one block, \
                 then explain in a few sentences what is not obvious.",
                0.2,
            ),
            preset("Story", "You are a writer. Write vividly, in short scenes.", 1.0),
            preset(
                "Translate",
                "Translate what the user writes into English. If it is English, translate it into \
                 the language that the user names. Write nothing but the translation.",
                0.2,
            ),
        ]
    }
}

/// What the program remembers. A missing field has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Light, dark, or that of the system.
    pub theme: Theme,
    /// Scale of the window's contents; 1 is that of the system.
    pub scale: f32,
    /// Id of the device; `None` selects the best one.
    pub device: Option<String>,
    /// Whether products are computed in 32 bits.
    pub exact: bool,
    /// Positions of the context.
    pub context: Option<usize>,
    /// The system message; empty for none.
    pub system: String,
    /// Presets of the user.
    pub presets: Vec<Preset>,
    /// Randomness of answers; 0 always takes the most probable token.
    pub temperature: f32,
    /// Maximum number of tokens of an answer.
    pub max_tokens: usize,
    /// Seed of the random choice; `None` is another one for each answer.
    pub seed: Option<u64>,
    /// Files of models that were loaded, the last one first.
    pub recent: Vec<PathBuf>,
    /// The model at the last exit; `None` is the embedded one.
    pub model: Option<PathBuf>,
    /// Port of the server.
    pub port: u16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            theme: Theme::System,
            scale: 1.0,
            device: None,
            exact: false,
            context: None,
            system: String::new(),
            presets: Vec::new(),
            temperature: Sampling::default().temperature,
            max_tokens: 512,
            seed: None,
            recent: Vec::new(),
            model: None,
            port: 8080,
        }
    }
}

impl Settings {
    /// Reads the settings; defaults if there is no file.
    ///
    /// # Errors
    /// Io or invalid, with the path, if the file cannot be read.
    pub fn load(path: &Path) -> Result<Settings> {
        if !path.try_exists().unwrap_or(true) {
            return Ok(Settings::default());
        }
        let text = history::read_text(path)?;
        let read: Settings = serde_json::from_str(&text)
            .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
        Ok(read.within_limits())
    }

    /// Renames a file of settings that could not be read, so that the next one does not replace it.
    /// Returns its new path.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn set_aside(path: &Path) -> Result<PathBuf> {
        let mut aside = path.with_file_name("settings-unread.json");
        let mut number = 1;
        while aside.exists() {
            number += 1;
            aside.set_file_name(format!("settings-unread-{number}.json"));
        }
        fs::rename(path, &aside)
            .map_err(|e| Error::io(format!("cannot rename {}", path.display()), e))?;
        Ok(aside)
    }

    /// Writes the settings.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
        history::write(path, &text)
    }

    /// Limits the numbers to what the window can show.
    fn within_limits(mut self) -> Settings {
        let finite = |value: f32, otherwise| if value.is_finite() { value } else { otherwise };
        self.scale = finite(self.scale, 1.0).clamp(0.6, 3.0);
        self.temperature = finite(self.temperature, 0.8).clamp(0.0, 2.0);
        self.max_tokens = self.max_tokens.clamp(1, 1 << 20);
        self.recent.truncate(RECENT);
        for preset in &mut self.presets {
            preset.temperature = finite(preset.temperature, 0.8).clamp(0.0, 2.0);
        }
        self
    }

    /// Takes system message and sampling of a preset.
    pub fn apply(&mut self, preset: &Preset) {
        self.system.clone_from(&preset.system);
        self.temperature = preset.temperature;
    }

    /// Returns whether system message and sampling are those of a preset.
    pub fn is(&self, preset: &Preset) -> bool {
        self.system == preset.system && self.temperature == preset.temperature
    }

    /// Keeps system message and sampling as a preset, in place of one with that name.
    pub fn keep_preset(&mut self, name: &str) {
        let (system, temperature) = (self.system.clone(), self.temperature);
        let preset = Preset { name: name.to_owned(), system, temperature };
        match self.presets.iter_mut().find(|known| known.name == name) {
            Some(known) => *known = preset,
            None => self.presets.push(preset),
        }
    }

    /// Puts a file at the head of the recent models.
    pub fn remember(&mut self, path: &Path) {
        self.recent.retain(|known| known != path);
        self.recent.insert(0, path.to_owned());
        self.recent.truncate(RECENT);
    }

    /// Returns the sampling of the answer with this number.
    pub fn sampling(&self, answer: u64) -> Sampling {
        let seed = self.seed.map_or_else(random, |seed| seed.wrapping_add(answer));
        Sampling::default().temperature(self.temperature).seed(seed)
    }
}

/// Returns another number at each call.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_and_wild_numbers_are_limited() {
        let folder = std::env::temp_dir().join(format!("warploom-settings-{}", std::process::id()));
        let path = folder.join("settings.json");
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(Settings::load(&path).unwrap(), Settings::default());
        let mut settings = Settings { theme: Theme::Dark, seed: Some(3), ..Settings::default() };
        for i in 0..20 {
            settings.remember(Path::new(&format!("{i}.gguf")));
        }
        settings.remember(Path::new("18.gguf"));
        assert_eq!(settings.recent[..2], [Path::new("18.gguf"), Path::new("19.gguf")]);
        assert_eq!(settings.recent.len(), RECENT);
        settings.apply(&Preset::builtin()[1]);
        assert!(settings.is(&Preset::builtin()[1]) && !settings.is(&Preset::builtin()[0]));
        for temperature in [0.3, 0.4] {
            settings.temperature = temperature;
            settings.keep_preset("mine");
        }
        assert_eq!((settings.presets.len(), settings.presets[0].temperature), (1, 0.4));
        settings.save(&path).unwrap();
        assert_eq!(Settings::load(&path).unwrap(), settings);
        assert_eq!(settings.sampling(2).seed, 5);
        fs::write(&path, "{\"scale\": 1e9, \"temperature\": -4}").unwrap();
        let wild = Settings::load(&path).unwrap();
        assert_eq!((wild.scale, wild.temperature, wild.max_tokens), (3.0, 0.0, 512));
        fs::write(&path, "{").unwrap();
        assert!(Settings::load(&path).unwrap_err().to_string().contains("settings.json"));
        fs::remove_dir_all(folder).unwrap();
    }
}
