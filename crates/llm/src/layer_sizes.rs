//! Sizes that differ between the layers of a model.

use super::config::{Config, Keys, MAX_WIDTH, Window};
use warploom::{Error, Result};
use warploom_models::gguf::Value;

/// Name of the table of the embeddings that layers have of a token.
pub(super) const LAYER_EMBEDDING: &str = "per_layer_token_embd";

/// What differs between the layers of a model; nothing by default.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LayerSizes {
    /// Heads of layers with a window, if those of other layers differ.
    pub local_heads: Option<LocalHeads>,
    /// Inner size of the feed-forward network of each layer; empty if all are equal.
    pub feed_forward: Vec<usize>,
    /// Number of layers at the end that read the keys and values of an earlier layer.
    pub shared_keys: usize,
    /// Number of elements of the embedding of a token that each layer reads; 0 for none.
    pub embedding: usize,
}

/// Heads of layers with a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalHeads {
    /// Number of key and value heads.
    pub kv_heads: usize,
    /// Size of one head, in elements; even.
    pub head_dim: usize,
    /// Number of elements at the start of a head that are rotated; even.
    pub rope_dim: usize,
}

impl Keys<'_> {
    /// Reads a count from `least` to `most` for each layer: an array, or one number for all layers;
    /// `None` if there is neither.
    pub(super) fn layer_counts(
        &self,
        name: &str,
        layers: usize,
        [least, most]: [u64; 2],
    ) -> Result<Option<Vec<usize>>> {
        let Some(Value::Array(array)) = self.file.value(&self.key(name)) else {
            return Ok(self.find_count(name, most)?.map(|n| vec![n; layers]));
        };
        // Further blocks may predict further tokens.
        if array.len() < layers {
            return Err(self.bad(name, format!("{} values for {layers} layers", array.len())));
        }
        let range = i128::from(least)..=i128::from(most);
        let one = |(layer, item): (usize, Value<'_>)| match (item.integer(), item) {
            (_, Value::Bool(is)) => Ok(usize::from(is)),
            (Some(n), _) if range.contains(&n) => Ok(n as usize),
            (Some(n), _) => {
                let what = format!("{n} of layer {layer}, must be from {least} to {most}");
                Err(self.bad(name, what))
            }
            (None, _) => Err(self.bad(name, "values that are no integers".into())),
        };
        array.items().take(layers).enumerate().map(one).collect::<Result<_>>().map(Some)
    }

    /// Returns the number of key and value heads of each layer; 0 for one without attention.
    pub(super) fn kv_heads(&self, heads: usize, layers: usize) -> Result<Vec<usize>> {
        let name = "attention.head_count_kv";
        let (architecture, most) = (self.architecture, heads as u64);
        let counts = match (architecture.short_convs, architecture.varies) {
            (true, _) => self.layer_counts(name, layers, [0, most])?,
            (false, true) => self.layer_counts(name, layers, [1, most])?,
            (false, false) => self.find_count(name, most)?.map(|n| vec![n; layers]),
        };
        let counts = counts.unwrap_or_else(|| vec![heads; layers]);
        match counts.iter().find(|n| **n > 0 && !heads.is_multiple_of(**n)) {
            Some(n) => {
                let what = format!("{n} does not divide attention.head_count, {heads}");
                Err(self.bad(name, what))
            }
            None => Ok(counts),
        }
    }

    /// Returns the one value of the layers with a window, or of those without one; `None` if there is
    /// no such layer.
    fn of_kind(
        &self,
        name: &str,
        counts: &[usize],
        window: Option<Window>,
        is_local: bool,
    ) -> Result<Option<usize>> {
        let local = |layer: usize| window.is_some_and(|window| !window.sees_all(layer));
        let of = |(layer, n): (usize, &usize)| (local(layer) == is_local).then_some(*n);
        let mut found = counts.iter().enumerate().filter_map(of);
        let Some(first) = found.next() else { return Ok(None) };
        match found.find(|n| *n != first) {
            Some(other) => {
                let kind = if is_local { "with" } else { "without" };
                let what = format!("{first} and {other} in layers {kind} a window");
                Err(self.unsupported(name, what))
            }
            None => Ok(Some(first)),
        }
    }

    /// Returns the number of key and value heads of layers without a window, or of all.
    pub(super) fn wide_kv_heads(&self, counts: &[usize], window: Option<Window>) -> Result<usize> {
        let name = "attention.head_count_kv";
        if self.architecture.short_convs {
            let mut found = counts.iter().copied().filter(|heads| *heads > 0);
            let first =
                found.next().ok_or_else(|| self.bad(name, "no layer has attention".into()))?;
            return match found.find(|heads| *heads != first) {
                Some(other) => Err(self.unsupported(name, format!("{first} and {other} heads"))),
                None => Ok(first),
            };
        }
        let wide = self.of_kind(name, counts, window, false)?;
        Ok(wide.or(counts.first().copied()).unwrap_or(1))
    }

    /// Reads what differs between layers. `head_dim` is the size of a head in layers without a window.
    pub(super) fn layer_sizes(
        &self,
        layers: usize,
        [heads, head_dim]: [usize; 2],
        kv_heads: &[usize],
        window: Option<Window>,
    ) -> Result<LayerSizes> {
        if !self.architecture.varies {
            return Ok(LayerSizes::default());
        }
        let most = MAX_WIDTH / heads as u64;
        let [of_key, of_value] = ["attention.key_length_swa", "attention.value_length_swa"];
        let local_dim = self.find_count(of_key, most)?.unwrap_or(head_dim);
        let even = |name: &str, n: usize| match n % 2 {
            0 => Ok(n),
            _ => Err(self.bad(name, format!("{n} elements cannot be rotated in pairs"))),
        };
        even(of_key, local_dim)?;
        let rotated = "rope.dimension_count_swa";
        let rope_dim = self.find_count(rotated, local_dim as u64)?.unwrap_or(local_dim);
        even(rotated, rope_dim)?;
        match self.find_count(of_value, most)? {
            Some(n) if n != local_dim => {
                let what = format!("{n}, but keys have {local_dim} elements");
                return Err(self.bad(of_value, what));
            }
            _ => {}
        }
        let local = self.of_kind("attention.head_count_kv", kv_heads, window, true)?;
        let feed_forward = self.layer_counts("feed_forward_length", layers, [1, MAX_WIDTH])?;
        let feed_forward = feed_forward.unwrap_or_default();
        let is_even = feed_forward.windows(2).all(|pair| pair[0] == pair[1]);
        Ok(LayerSizes {
            local_heads: local.map(|kv_heads| LocalHeads {
                kv_heads,
                head_dim: local_dim,
                rope_dim,
            }),
            feed_forward: if is_even { Vec::new() } else { feed_forward },
            shared_keys: self.shared_keys(layers)?,
            embedding: self.layer_embedding()?,
        })
    }

    fn shared_keys(&self, layers: usize) -> Result<usize> {
        let name = "attention.shared_kv_layers";
        match self.file.find_u64(&self.key(name))?.unwrap_or(0) {
            n if n >= layers as u64 => Err(self.bad(name, format!("{n} of {layers} layers"))),
            n => Ok(n as usize),
        }
    }

    fn layer_embedding(&self) -> Result<usize> {
        let name = "embedding_length_per_layer_input";
        let table = format!("{LAYER_EMBEDDING}.weight");
        match self.file.find_u64(&self.key(name))? {
            // Models without such embeddings.
            None | Some(0) if self.file.find_tensor(&table).is_none() => Ok(0),
            None => Err(self.bad(name, format!("missing, but there is a tensor {table}"))),
            Some(0) => Err(self.bad(name, format!("0, but there is a tensor {table}"))),
            Some(_) => self.count(name, MAX_WIDTH),
        }
    }
}

impl Config {
    fn local_heads(&self, layer: usize) -> Option<&LocalHeads> {
        self.layer_sizes.local_heads.as_ref().filter(|_| self.window(layer).is_some())
    }

    /// Returns the size of one head of this layer, in elements.
    pub fn head_dim_of(&self, layer: usize) -> usize {
        self.local_heads(layer).map_or(self.head_dim, |local| local.head_dim)
    }

    /// Returns the number of key and value heads of this layer.
    pub fn kv_heads_of(&self, layer: usize) -> usize {
        self.local_heads(layer).map_or(self.kv_heads, |local| local.kv_heads)
    }

    /// Returns the number of elements of a head that are rotated in this layer.
    pub fn rope_dim_of(&self, layer: usize) -> usize {
        self.local_heads(layer).map_or(self.rope_dim, |local| local.rope_dim)
    }

    /// Returns the number of elements of a head that are rotated in layers with frequencies of their
    /// own.
    pub fn local_rope_dim(&self) -> usize {
        self.layer_sizes.local_heads.map_or(self.rope_dim, |local| local.rope_dim)
    }

    /// Returns the number of key elements per position of this layer, which is also the number of
    /// value elements.
    pub fn kv_width_of(&self, layer: usize) -> usize {
        self.kv_heads_of(layer) * self.head_dim_of(layer)
    }

    /// Returns the inner size of the feed-forward network of this layer, in elements.
    pub fn feed_forward_of(&self, layer: usize) -> usize {
        self.layer_sizes.feed_forward.get(layer).copied().unwrap_or(self.feed_forward)
    }

    /// Returns the layer whose keys and values this layer reads: itself, or the last layer of the same
    /// kind that has its own.
    pub fn keys_of(&self, layer: usize) -> usize {
        let own = self.layers - self.layer_sizes.shared_keys;
        if layer < own {
            return layer;
        }
        let is_local = self.window(layer).is_some();
        let same = |other: &usize| self.window(*other).is_some() == is_local;
        (0..own).rev().find(same).unwrap_or(layer)
    }

    /// Checks that each layer without keys has an earlier layer to read them from.
    pub(super) fn check_shared_keys(&self, keys: &Keys<'_>) -> Result<()> {
        let own = self.layers - self.layer_sizes.shared_keys;
        let lacks = |layer: &usize| self.keys_of(*layer) == *layer;
        match (own..self.layers).find(lacks) {
            Some(layer) => {
                let shared = self.layer_sizes.shared_keys;
                let what = format!("{shared}: no layer of its kind has the keys of layer {layer}");
                Err(keys.bad("attention.shared_kv_layers", what))
            }
            None => Ok(()),
        }
    }
}

impl Window {
    /// Returns whether a layer has no window.
    pub(super) fn sees_all(&self, layer: usize) -> bool {
        self.period.is_some_and(|period| (layer + 1).is_multiple_of(period))
    }
}

/// Returns the error for a file whose layers with a window are not those of a period.
pub(super) fn irregular(keys: &Keys<'_>, name: &str, period: usize) -> Error {
    keys.unsupported(name, format!("a window in other layers than all but each {period}th"))
}

#[cfg(test)]
#[path = "layer_sizes_tests.rs"]
mod tests;
