//! Conversations, each a JSON file in one folder.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use warploom::{Error, Result};

/// Largest file of text that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Longest title in characters.
const TITLE: usize = 40;

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Whether the user wrote it; otherwise the model did.
    pub user: bool,
    /// The text.
    pub text: String,
    /// Figures of an answer, as shown below it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stats: String,
}

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Name of its file, without the extension.
    #[serde(skip)]
    pub id: String,
    /// Seconds since 1970 of the last change.
    pub changed: u64,
    /// Title that the user gave; otherwise it is made of the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The messages.
    pub messages: Vec<Message>,
    /// Hash of the file as it was last read or written; `None` if it has none.
    #[serde(skip)]
    pub on_disk: Option<u64>,
}

/// How a conversation was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Into its file.
    InPlace,
    /// Into a new file, with a new id: another program changed its own one meanwhile.
    AsCopy,
}

impl Conversation {
    /// Returns the title: the user's, otherwise the beginning of the first message.
    pub fn title(&self) -> String {
        if let Some(title) = &self.title {
            return title.clone();
        }
        let Some(first) = self.messages.first() else { return "New chat".into() };
        let line = first.text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(TITLE) {
            Some((end, _)) => format!("{}…", line[..end].trim_end()),
            None => line,
        }
    }

    /// Returns whether the title or a message has a text, in any case of letters.
    pub fn contains(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let has = |other: &str| other.to_lowercase().contains(&text);
        has(&self.title()) || self.messages.iter().any(|message| has(&message.text))
    }

    /// Returns the conversation as Markdown.
    pub fn markdown(&self) -> String {
        let messages = self.messages.iter().map(|message| {
            let name = if message.user { "You" } else { "Model" };
            format!("**{name}**\n\n{}\n", message.text.trim())
        });
        let body = messages.collect::<Vec<_>>().join("\n");
        format!("# {}\n\n{body}", self.title())
    }
}

/// The folder of conversations.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Creates a store in a folder, which is created when something is saved.
    pub fn new(folder: impl Into<PathBuf>) -> Store {
        Store { folder: folder.into() }
    }

    /// Reads all conversations, the last changed first, and the files that could not be read.
    pub fn load(&self) -> (Vec<Conversation>, Vec<Error>) {
        let (mut all, mut errors) = (Vec::new(), Vec::new());
        let Ok(entries) = fs::read_dir(&self.folder) else { return (all, errors) };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "json") {
                match read(&path) {
                    Ok(conversation) => all.push(conversation),
                    Err(error) => errors.push(error),
                }
            }
        }
        all.sort_by(|a, b| (b.changed, &b.id).cmp(&(a.changed, &a.id)));
        (all, errors)
    }

    /// Returns a new, empty conversation. It has a file only after [`Store::save`].
    pub fn create(&self) -> Conversation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut number = now.as_millis();
        while self.path(&number.to_string()).exists() {
            number += 1;
        }
        let changed = now.as_secs();
        Conversation { id: number.to_string(), changed, ..Conversation::default() }
    }

    /// Writes a conversation, and sets the time of its change. A file that exists is replaced only
    /// after the new one is complete, and only if it is as this program knows it: what another program
    /// wrote into it is kept, and the conversation goes into a new file.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn save(&self, conversation: &mut Conversation) -> Result<Saved> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        conversation.changed = now.as_secs();
        let text = serde_json::to_string_pretty(conversation)
            .map_err(|e| Error::invalid(format!("conversation {}: {e}", conversation.id)))?;
        let path = self.path(&conversation.id);
        let there = fs::read(&path).ok().map(|bytes| hash(&bytes));
        let is_known = there.is_none() || there == conversation.on_disk;
        let path = match is_known {
            true => path,
            false => {
                conversation.id = self.create().id;
                self.path(&conversation.id)
            }
        };
        write(&path, &text)?;
        conversation.on_disk = Some(hash(text.as_bytes()));
        Ok(if is_known { Saved::InPlace } else { Saved::AsCopy })
    }

    /// Deletes the file of a conversation, if it has one.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn delete(&self, conversation: &Conversation) -> Result<()> {
        let path = self.path(&conversation.id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("cannot delete {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a conversation as Markdown, into the folder `exports` beside the store's own. Returns
    /// the path.
    ///
    /// # Errors
    /// Io, with the path.
    pub fn export(&self, conversation: &Conversation) -> Result<PathBuf> {
        let title = conversation.title().to_lowercase();
        let words = title.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let name: String = words.collect::<Vec<_>>().join("-").chars().take(TITLE).collect();
        // Several conversations may have one title.
        let name = format!("{name}-{}.md", conversation.id);
        let path = self.folder.with_file_name("exports").join(name);
        write(&path, &conversation.markdown())?;
        Ok(path)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }
}

/// Writes a file so that it is complete or as before, and creates its folder.
///
/// # Errors
/// Io, with the path.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let io = |e| Error::io(format!("cannot write {}", path.display()), e);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    let new = path.with_extension("new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&new);
        io(e)
    })
}

/// Reads a file of text.
///
/// # Errors
/// Io, with the path; invalid if it is no regular file, whose reading might never end, or too large.
pub fn read_text(path: &Path) -> Result<String> {
    let io = |e| Error::io(format!("cannot read {}", path.display()), e);
    let found = fs::metadata(path).map_err(io)?;
    if !found.is_file() {
        return Err(Error::invalid(format!("{}: not a regular file", path.display())));
    }
    let bytes = found.len();
    if bytes > MAX_BYTES {
        let text = format!("{}: {bytes} bytes, at most {MAX_BYTES} are read", path.display());
        return Err(Error::invalid(text));
    }
    fs::read_to_string(path).map_err(io)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn read(path: &Path) -> Result<Conversation> {
    let text = read_text(path)?;
    let mut conversation: Conversation = serde_json::from_str(&text)
        .map_err(|e| Error::invalid(format!("{}: {e}", path.display())))?;
    conversation.id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    conversation.on_disk = Some(hash(text.as_bytes()));
    Ok(conversation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warploom-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn conversations_come_back_the_last_changed_first() {
        let folder = folder("history");
        let store = Store::new(&folder);
        assert_eq!(store.load().0, []);
        let mut first = store.create();
        first.messages.push(Message { user: true, text: "A  fox\nruns".into(), stats: "".into() });
        store.save(&mut first).unwrap();
        let mut second = store.create();
        assert_ne!(first.id, second.id);
        second.title = Some("Second".into());
        store.save(&mut second).unwrap();
        // An equal second: the later id comes first.
        let (all, errors) = store.load();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(
            all.iter().map(Conversation::title).collect::<Vec<_>>(),
            ["Second", "A fox runs"]
        );
        assert!(all[1].contains("FOX") && !all[1].contains("wolf"));
        assert_eq!(all[1].markdown(), "# A fox runs\n\n**You**\n\nA  fox\nruns\n");
        let path = store.export(&all[1]).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        assert_eq!(name, format!("a-fox-runs-{}.md", first.id));
        assert_eq!(fs::read_to_string(&path).unwrap(), all[1].markdown());
        fs::remove_file(&path).unwrap();
        store.delete(&second).unwrap();
        store.delete(&second).unwrap();
        assert_eq!(store.load().0.len(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_named_and_the_others_are_read() {
        let folder = folder("damaged");
        let store = Store::new(&folder);
        store.save(&mut store.create()).unwrap();
        fs::write(folder.join("1.json"), "{\"changed\": \"no\"").unwrap();
        let (all, errors) = store.load();
        assert_eq!((all.len(), errors.len()), (1, 1));
        assert!(errors[0].to_string().contains("1.json"), "{}", errors[0]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_another_program_wrote_is_kept() {
        let folder = folder("two");
        let store = Store::new(&folder);
        let mut mine = store.create();
        assert_eq!(store.save(&mut mine).unwrap(), Saved::InPlace);
        let mut other = store.load().0.remove(0);
        let said = |text: &str| Message { user: true, text: text.into(), stats: String::new() };
        other.messages.push(said("other"));
        assert_eq!(store.save(&mut other).unwrap(), Saved::InPlace);
        mine.messages.push(said("mine"));
        assert_eq!(store.save(&mut mine).unwrap(), Saved::AsCopy);
        assert_ne!(mine.id, other.id);
        assert_eq!(store.save(&mut mine).unwrap(), Saved::InPlace);
        let mut texts: Vec<String> =
            store.load().0.iter().map(|c| c.messages[0].text.clone()).collect();
        texts.sort();
        assert_eq!(texts, ["mine", "other"]);
        // What was deleted elsewhere is written again.
        store.delete(&mine).unwrap();
        assert_eq!(store.save(&mut mine).unwrap(), Saved::InPlace);
        fs::remove_dir_all(folder).unwrap();
    }

    /// Nothing writes into it, so that reading would never end.
    #[test]
    #[cfg(unix)]
    fn a_pipe_is_not_read() {
        let folder = folder("pipe");
        fs::create_dir_all(&folder).unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.join("1.json")).status();
        assert!(made.unwrap().success());
        let (all, errors) = Store::new(&folder).load();
        assert_eq!((all.len(), errors.len()), (0, 1));
        assert!(errors[0].to_string().contains("not a regular file"), "{}", errors[0]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_with_its_path() {
        let folder = folder("taken");
        fs::write(&folder, "a file").unwrap();
        let store = Store::new(folder.join("inside"));
        let error = store.save(&mut store.create()).unwrap_err();
        assert!(error.is_io() && error.to_string().contains("inside"), "{error}");
        fs::remove_file(folder).unwrap();
    }
}
