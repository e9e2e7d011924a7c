//! Prefixes of sequences: copied to another sequence, kept in host memory, and held for recurrent
//! layers.
//!
//! A cache of keys and values has a row for each position, so a prefix is its first rows. The states
//! of recurrent layers are those of one position: they can be taken where they are, or where a copy
//! of them was held.

use super::decoder;
use super::planner::DeviceModel;
use super::recovery::History;
use super::session::Session;
use warploom::runtime::TensorPart;
use warploom::{Error, Result};

/// Bytes that are read from the device in one submit.
const READ: u64 = 64 << 20;

/// A state of all sequences in device memory.
pub(super) struct State {
    pub(super) name: String,
    pub(super) layout: Layout,
}

/// How a state is laid out.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// This number of bytes for each position of each sequence: keys or values.
    Rows(u64),
    /// This number of bytes for each sequence: a state of a recurrent layer.
    Whole(u64),
}

impl State {
    /// Returns the size in bytes, over all sequences.
    pub(super) fn bytes(&self, on: &DeviceModel) -> u64 {
        match self.layout {
            Layout::Rows(row) => on.cache.rows() as u64 * row,
            Layout::Whole(bytes) => on.cache.sequences as u64 * bytes,
        }
    }

    /// Returns the first byte of a sequence, and the bytes of its first `positions` positions.
    fn part(&self, on: &DeviceModel, sequence: usize, positions: usize) -> (u64, u64) {
        match self.layout {
            Layout::Rows(row) => {
                ((sequence * on.cache.context) as u64 * row, positions as u64 * row)
            }
            Layout::Whole(bytes) => (sequence as u64 * bytes, bytes),
        }
    }

    /// Returns the name of the state that holds a copy of this one.
    fn copy_name(&self) -> String {
        format!("{}.held", self.name)
    }
}

/// Returns the states of a model that belong to a prefix.
pub(super) fn states(on: &DeviceModel) -> Vec<State> {
    let config = on.model.config();
    let mut states = Vec::new();
    for layer in 0..config.layers {
        if config.has_keys(layer) {
            let row = config.kv_width_of(layer) as u64 * on.cache.dtype.bytes();
            let named = |kind| decoder::cache_name(kind, layer);
            let of = |name| State { name, layout: Layout::Rows(row) };
            states.extend(['k', 'v'].map(named).map(of));
        }
        let names = [decoder::conv_name(layer), decoder::delta_name(layer)];
        let each = names.into_iter().zip(config.state_elements(layer));
        let each = each.filter(|(_, elements)| *elements > 0);
        states.extend(each.map(|(name, n)| State { name, layout: Layout::Whole(4 * n as u64) }));
    }
    states
}

/// The first positions of a sequence, in host memory; see [`Session::save_prefix`].
#[derive(Clone)]
pub struct SavedPrefix {
    tokens: Vec<u32>,
    /// Number of bytes of a position, over all layers, and of the states of recurrent layers.
    sizes: [u64; 2],
    /// The bytes of each state.
    states: Vec<Vec<u8>>,
}

warploom_core::base::debug_as!(SavedPrefix, |this| tokens: this.tokens.len(), bytes: this.bytes());

impl SavedPrefix {
    /// Returns the tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.states.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

impl Session {
    fn is_recurrent(&self) -> bool {
        self.model().config().is_recurrent()
    }

    /// Returns the largest number of positions of a sequence, up to `most`, from which a run can go on
    /// without another look at the tokens before. In a model with recurrent layers these are the
    /// last position, and the one at which the states were held ([`Session::hold_states`]).
    pub fn resumable(&self, sequence: usize, most: usize) -> usize {
        let most = most.min(self.past_of(sequence));
        if !self.is_recurrent() {
            return most;
        }
        let known = [self.absorbed.get(sequence), self.held.get(sequence)];
        let known = known.into_iter().filter_map(|known| known.copied().flatten());
        known.filter(|known| *known <= most).max().unwrap_or(0)
    }

    /// Holds a copy of the states of a sequence's recurrent layers on the device, in place of an
    /// earlier one: after [`Session::truncate_sequence`] to this position or a later one, only the
    /// tokens since are read again. Does nothing in a model without such layers.
    ///
    /// # Errors
    /// Invalid if there is no such sequence; out of memory for the copies of all sequences' states,
    /// which are as large as those; any device error.
    pub fn hold_states(&mut self, sequence: usize) -> Result<()> {
        self.check_sequence(sequence)?;
        let past = self.past_of(sequence);
        if !self.is_recurrent() || self.absorbed[sequence] != Some(past) {
            return Ok(());
        }
        self.held[sequence] = None;
        let on = self.on.clone();
        let whole = || states(&on).into_iter().filter(|s| matches!(s.layout, Layout::Whole(_)));
        let missing: Vec<(String, u64)> = whole()
            .filter(|state| self.tensors.get(&state.copy_name()).is_none())
            .map(|state| (state.copy_name(), state.bytes(&on)))
            .collect();
        let missing: Vec<(&str, u64)> = missing.iter().map(|(n, b)| (n.as_str(), *b)).collect();
        self.tensors.states(on.runtime.pool(), &**on.runtime.device(), &missing)?;
        let each: Vec<(String, String, (u64, u64))> =
            whole().map(|s| (s.name.clone(), s.copy_name(), s.part(&on, sequence, 0))).collect();
        let parts = each.iter().map(|(from, to, at)| [part(from, *at), part(to, *at)]);
        self.tensors.copy(&on.runtime, &parts.collect::<Vec<_>>())?;
        self.held[sequence] = Some(past);
        Ok(())
    }

    /// Brings the states of recurrent layers back to the held ones.
    pub(super) fn take_held(&mut self, sequence: usize) -> Result<()> {
        let on = self.on.clone();
        let states = states(&on).into_iter().filter(|s| matches!(s.layout, Layout::Whole(_)));
        let each: Vec<(String, String, (u64, u64))> =
            states.map(|s| (s.copy_name(), s.name.clone(), s.part(&on, sequence, 0))).collect();
        let parts = each.iter().map(|(from, to, at)| [part(from, *at), part(to, *at)]);
        self.tensors.copy(&on.runtime, &parts.collect::<Vec<_>>())
    }

    /// Makes the first `positions` positions of sequence `from` the contents of sequence `to`, by
    /// copies on the device, which cost less than the reading of their tokens. The sequences may run
    /// in turn meanwhile.
    ///
    /// # Errors
    /// Invalid for sequences that are not there, for more positions than are filled, and in a model
    /// with recurrent layers for positions that are not [`Session::resumable`]; unsupported if a row
    /// of the cache is no multiple of 4 bytes; out of memory for a buffer of the size of one layer's
    /// part; any device error. The sequence `to` is empty after an error.
    pub fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) -> Result<()> {
        self.check_sequence(to)?;
        if from == to {
            return self.truncate_sequence(to, positions);
        }
        let sources = self.sources(from, positions)?;
        self.clear(to);
        let tokens = self.histories[from].tokens()[..positions].to_vec();
        let on = self.on.clone();
        let targets = states(&on).into_iter().map(|state| {
            let at = state.part(&on, to, positions);
            (state.name, at)
        });
        let each: Vec<_> = sources.into_iter().zip(targets).collect();
        let parts =
            each.iter().map(|((from, at), (to, to_at))| [part(from, *at), part(to, *to_at)]);
        self.tensors.copy(&on.runtime, &parts.collect::<Vec<_>>())?;
        self.fill(to, &tokens);
        Ok(())
    }

    /// Copies the first `positions` positions of a sequence to host memory.
    ///
    /// # Errors
    /// Same as [`Session::copy_prefix`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn save_prefix(&self, sequence: usize, positions: usize) -> Result<SavedPrefix> {
        warploom_core::base::platform::block_on(self.save_prefix_async(sequence, positions))
    }

    /// Async version of `Session::save_prefix`.
    ///
    /// # Errors
    /// Same as `Session::save_prefix`.
    pub async fn save_prefix_async(
        &self,
        sequence: usize,
        positions: usize,
    ) -> Result<SavedPrefix> {
        let sources = self.sources(sequence, positions)?;
        let mut bytes = Vec::with_capacity(sources.len());
        let mut group: Vec<TensorPart<'_>> = Vec::new();
        for (name, at) in &sources {
            group.push(part(name, *at));
            if group.iter().map(|part| part.bytes).sum::<u64>() >= READ {
                bytes.extend(self.tensors.read_async(self.runtime(), &group).await?);
                group.clear();
            }
        }
        bytes.extend(self.tensors.read_async(self.runtime(), &group).await?);
        let tokens = self.histories[sequence].tokens()[..positions].to_vec();
        Ok(SavedPrefix { tokens, sizes: self.prefix_sizes(), states: bytes })
    }

    /// Makes the first `positions` positions of a saved prefix the contents of a sequence.
    ///
    /// # Errors
    /// Invalid for a sequence that is not there, for more positions than were saved or fit the
    /// context, for fewer in a model with recurrent layers, and for a prefix of another model or
    /// another type of cache; any device error. The sequence is empty after an error.
    pub fn load_prefix(
        &mut self,
        sequence: usize,
        saved: &SavedPrefix,
        positions: usize,
    ) -> Result<()> {
        self.check_sequence(sequence)?;
        let have = saved.tokens.len();
        if positions > have || (self.is_recurrent() && positions != have) {
            return Err(Error::invalid(format!("{positions} positions of a prefix of {have}")));
        }
        if positions > self.context() {
            return Err(self.no_room(0, positions));
        }
        if saved.sizes != self.prefix_sizes() {
            let (a, b) = (saved.sizes, self.prefix_sizes());
            return Err(Error::invalid(format!(
                "a prefix of {} bytes a position and {} of states for a model with {} and {}",
                a[0], a[1], b[0], b[1]
            )));
        }
        self.clear(sequence);
        let on = self.on.clone();
        for (state, bytes) in states(&on).iter().zip(&saved.states) {
            let (offset, count) = state.part(&on, sequence, positions);
            let bytes = &bytes[..count as usize];
            self.tensors.write(&**on.runtime.device(), &state.name, offset, bytes)?;
        }
        self.fill(sequence, &saved.tokens[..positions]);
        Ok(())
    }

    /// Returns the bytes of a position and those of a sequence's recurrent states, which prefixes of another
    /// model have not.
    fn prefix_sizes(&self) -> [u64; 2] {
        states(&self.on).iter().fold([0, 0], |[rows, whole], state| match state.layout {
            Layout::Rows(row) => [rows + row, whole],
            Layout::Whole(bytes) => [rows, whole + bytes],
        })
    }

    /// Returns, for each state, where the first `positions` positions of a sequence are: its name, the
    /// first byte and the number of bytes.
    fn sources(&self, sequence: usize, positions: usize) -> Result<Vec<(String, (u64, u64))>> {
        self.check_sequence(sequence)?;
        let filled = self.past_of(sequence);
        if positions > filled {
            let text = format!("{positions} positions of sequence {sequence}, {filled} are filled");
            return Err(Error::invalid(text));
        }
        if self.resumable(sequence, positions) != positions {
            return Err(Error::invalid(format!(
                "the recurrent states of sequence {sequence} after {positions} tokens are not known"
            )));
        }
        let is_held = self.is_recurrent() && self.absorbed[sequence] != Some(positions);
        let each = states(&self.on).into_iter().map(|state| {
            let at = state.part(&self.on, sequence, positions);
            if !at.0.is_multiple_of(4) || !at.1.is_multiple_of(4) {
                let (name, bytes) = (&state.name, at.1);
                return Err(Error::unsupported(format!("copies of {bytes} bytes of {name}")));
            }
            let is_held = is_held && matches!(state.layout, Layout::Whole(_));
            Ok((if is_held { state.copy_name() } else { state.name }, at))
        });
        each.collect()
    }

    /// Empties a sequence.
    fn clear(&mut self, sequence: usize) {
        self.past[sequence] = 0;
        self.chosen[sequence] = false;
        self.histories[sequence] = History::default();
        self.absorbed[sequence] = None;
        self.held[sequence] = None;
    }

    /// Notes that a sequence holds these tokens.
    fn fill(&mut self, sequence: usize, tokens: &[u32]) {
        self.past[sequence] = tokens.len();
        self.histories[sequence].extend(tokens);
        self.absorbed[sequence] = Some(tokens.len());
    }
}

fn part(name: &str, (offset, bytes): (u64, u64)) -> TensorPart<'_> {
    TensorPart { name, offset, bytes }
}
