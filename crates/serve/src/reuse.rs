//! Reuse of what was read before: the sequence of a request, and the prefix that it starts with.
//!
//! A prompt goes on in the sequence whose cache it continues. If no free sequence has most of its
//! cache in common with the prompt, the one unused for the longest time is taken, and the longest
//! prefix is copied to it: from another sequence, which may be writing an answer, or from host memory,
//! where a cache is kept when its sequence is taken.

use super::queue::Job;
use super::scheduler::Scheduler;
use super::sequences::Sequences;
use warploom::Result;

/// Number of tokens below which nothing is copied: they cost little in the run of the prompt. An estimate,
/// not measured.
const WORTH: usize = 32;
/// Number of last tokens of a prompt before which the states of recurrent layers are held. The next
/// request of a conversation has the prompt in common but for what asked for the answer.
pub(super) const TAIL: usize = 32;

/// Where the prefix of a prompt comes from, with its number of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// The sequence's own cache.
    Own(usize),
    /// The cache of another sequence.
    Sequence(usize, usize),
    /// A prefix in host memory, by its number.
    Saved(u64, usize),
}

/// A prefix in host memory.
struct Entry<T> {
    /// Its number, which no other has.
    id: u64,
    tokens: Vec<u32>,
    saved: T,
    bytes: u64,
    /// Serial number of its last use; lower numbers are older.
    used: u64,
}

/// Prefixes in host memory, up to a number of bytes.
pub(super) struct Prefixes<T> {
    entries: Vec<Entry<T>>,
    limit: u64,
    uses: u64,
}

impl<T> Prefixes<T> {
    pub(super) fn new(limit: u64) -> Prefixes<T> {
        Prefixes { entries: Vec::new(), limit, uses: 0 }
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Returns the number of the entry with the longest prefix of a prompt, and that prefix's length.
    /// If `whole` is set, entries count only as a whole.
    fn find(&self, prompt: &[u32], whole: bool) -> Option<(u64, usize)> {
        let each = self.entries.iter().map(|entry| {
            let shared = common(&entry.tokens, prompt);
            (entry.id, if whole && shared < entry.tokens.len() { 0 } else { shared })
        });
        each.max_by_key(|(_, shared)| *shared).filter(|(_, shared)| *shared > 0)
    }

    /// Notes a use of an entry.
    fn touch(&mut self, id: u64) {
        self.uses += 1;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.id == id) {
            entry.used = self.uses;
        }
    }

    /// Returns a prefix; `None` if it was dropped.
    fn get(&self, id: u64) -> Option<&T> {
        self.entries.iter().find(|entry| entry.id == id).map(|entry| &entry.saved)
    }

    /// Adds a prefix, and drops those used least recently that leave no room for it. If `whole` is not
    /// set, those that it starts with are dropped too.
    fn add(&mut self, tokens: Vec<u32>, saved: T, bytes: u64, whole: bool) {
        if bytes > self.limit {
            return;
        }
        if !whole {
            self.entries.retain(|entry| !tokens.starts_with(&entry.tokens));
        }
        self.entries.sort_by_key(|entry| entry.used);
        let mut left = self.bytes() + bytes;
        self.entries.retain(|entry| {
            let stays = left <= self.limit;
            left -= if stays { 0 } else { entry.bytes };
            stays
        });
        self.uses += 1;
        let (id, used) = (self.uses, self.uses);
        self.entries.push(Entry { id, tokens, saved, bytes, used });
    }
}

/// Returns the number of first tokens that both have.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl<S: Sequences> Scheduler<S> {
    /// Picks a free sequence for a prompt and brings the longest known prefix of the prompt into it.
    /// Returns the sequence and the length of that prefix; `None` if no sequence is free.
    pub(super) fn take_sequence(&mut self, job: &Job) -> Result<Option<(usize, usize)>> {
        let Some((index, source)) = self.choose_source(&job.prompt) else { return Ok(None) };
        let kept = match source {
            Source::Own(kept) => kept,
            Source::Sequence(..) => 0,
            Source::Saved(id, _) => {
                // So that it is dropped last to make room.
                self.prefixes.touch(id);
                0
            }
        };
        self.save(index, kept);
        let done = match source {
            Source::Own(kept) => {
                return self.steps.truncate(index, kept).map(|()| Some((index, kept)));
            }
            Source::Sequence(from, count) => {
                self.steps.copy_prefix(from, index, count).map(|()| count)
            }
            Source::Saved(id, count) => match self.prefixes.get(id) {
                Some(saved) => self.steps.load_prefix(index, saved, count).map(|()| count),
                None => self.steps.truncate(index, 0).map(|()| 0),
            },
        };
        // The prompt is read as a whole then, which is right as well.
        let count = done.or_else(|error| {
            tracing::warn!("a prefix of sequence {index} was not reused: {error}");
            self.steps.truncate(index, 0).map(|()| 0)
        })?;
        Ok(Some((index, count)))
    }

    fn choose_source(&self, prompt: &[u32]) -> Option<(usize, Source)> {
        // At least one token is run, because a cache holds no logits.
        let most = prompt.len() - 1;
        let shared = |index: usize| {
            let filled = self.filled(index);
            self.steps.resumable(index, common(filled, prompt).min(most))
        };
        let all: Vec<usize> = (0..self.slots.len()).map(shared).collect();
        let free = || (0..self.slots.len()).filter(|index| self.slots[*index].running.is_none());
        let oldest = free().min_by_key(|index| self.slots[*index].used)?;
        // Of whose cache no more than half would be lost.
        let stays = |index: &usize| 2 * all[*index] >= self.filled(*index).len();
        let own = free().filter(stays).max_by_key(|index| all[*index]);
        let other = (0..all.len()).max_by_key(|index| (all[*index], std::cmp::Reverse(*index)))?;
        let is_whole = self.steps.is_recurrent();
        let saved = self.prefixes.find(&prompt[..most], is_whole);
        let best = all[other].max(saved.map_or(0, |(_, count)| count));
        if let Some(own) = own.filter(|own| all[*own] > 0 && all[*own] + WORTH > best) {
            return Some((own, Source::Own(all[own])));
        }
        let source = match saved {
            Some((id, count)) if count >= all[other] + WORTH => Source::Saved(id, count),
            _ if other != oldest && all[other] >= all[oldest] + WORTH => {
                Source::Sequence(other, all[other])
            }
            _ => Source::Own(all[oldest]),
        };
        Some((oldest, source))
    }

    /// Returns the tokens in the cache of a sequence.
    fn filled(&self, index: usize) -> &[u32] {
        let tokens = &self.slots[index].tokens;
        &tokens[..self.steps.past_of(index).min(tokens.len())]
    }

    /// Returns how many of the first tokens of a sequence another sequence or the host memory has.
    fn found_elsewhere(&self, index: usize, tokens: &[u32]) -> usize {
        let others = (0..self.slots.len()).filter(|other| *other != index);
        let caches = others.map(|other| self.filled(other));
        let caches =
            caches.chain(self.prefixes.entries.iter().map(|entry| entry.tokens.as_slice()));
        let shared = caches.map(|cache| common(cache, tokens));
        // Recurrent layers cannot go on in the middle of what another one read.
        let is_whole = self.steps.is_recurrent();
        shared.filter(|shared| !is_whole || *shared == tokens.len()).max().unwrap_or(0)
    }

    /// Keeps the cache of a sequence in host memory before all but `kept` tokens of it are lost. While
    /// requests wait, their time is worth more.
    fn save(&mut self, index: usize, kept: usize) {
        let past = self.filled(index).len();
        let count = self.steps.resumable(index, past);
        if self.prefixes.limit == 0 || count < kept + WORTH || self.queue.waiting() > 0 {
            return;
        }
        let tokens = self.filled(index)[..count].to_vec();
        // The whole cache is copied, but what others have of it is not lost.
        let stays = kept.max(self.found_elsewhere(index, &tokens));
        if count - stays < WORTH.max(count / 2) {
            return;
        }
        match self.steps.save_prefix(index, count) {
            Ok(saved) => {
                let bytes = S::saved_bytes(&saved);
                self.prefixes.add(tokens, saved, bytes, self.steps.is_recurrent());
                self.queue.metrics.set_prefix_bytes(self.prefixes.bytes());
            }
            Err(error) => tracing::warn!("the cache of sequence {index} was not kept: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_found_and_dropped_by_last_use() {
        let mut prefixes = Prefixes::new(10);
        prefixes.add(vec![1, 2], "a", 4, false);
        prefixes.add(vec![7, 8, 9], "b", 4, false);
        assert_eq!(prefixes.find(&[1, 2, 3], false), Some((1, 2)));
        assert_eq!(prefixes.find(&[7, 8], false), Some((2, 2)));
        assert_eq!((prefixes.find(&[7, 8], true), prefixes.find(&[5], false)), (None, None));
        prefixes.touch(1);
        assert_eq!((prefixes.get(1), prefixes.get(9)), (Some(&"a"), None));
        // "b" was used least recently.
        prefixes.add(vec![5], "c", 4, false);
        assert_eq!((prefixes.find(&[7, 8], false), prefixes.bytes()), (None, 8));
        // A longer prefix takes the place of a shorter one, unless each counts as a whole.
        prefixes.add(vec![1, 2, 3], "d", 5, false);
        assert_eq!((prefixes.find(&[1, 2], false).map(|(_, n)| n), prefixes.bytes()), (Some(2), 9));
        prefixes.add(vec![5, 6], "e", 1, true);
        assert_eq!(prefixes.bytes(), 10);
        assert_eq!(prefixes.find(&[5, 1], true).map(|(_, n)| n), Some(1));
        prefixes.add(vec![9; 4], "too large", 11, false);
        assert_eq!(prefixes.find(&[9], false), None);
    }
}
