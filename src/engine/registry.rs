//! The registry of engines, and lookup by id.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::argmax::SplitArgMax;
use super::argsort::ArgSort;
use super::attention::coop::CoopAttention;
use super::attention::single_pass::{Attention, Rope};
use super::attention::split_kv::SplitAttention;
use super::attention::split_kv_fused::SpreadAttention;
use super::attention::subgroup::LanesAttention;
use super::conv::Conv;
use super::custom::Custom;
use super::delta::DeltaRule;
use super::elementwise::{self, Elementwise};
use super::gemm::batched::{MatMul, Tiles};
use super::gemm::batched_coop::CoopProduct;
use super::gemm::coop::CoopLinear;
use super::gemm::expert_tiles::ExpertTiles;
use super::gemm::experts::Experts;
use super::gemm::mma::TilesLinear;
use super::gemm::prequantized::CodesLinear;
use super::gemm::quantized::Linear;
use super::gemm::vendor::Library;
use super::index_add::IndexAdd;
use super::movement::{CopyInto, Gather, Scatter};
use super::reduce::{IntegerReduce, Reduce};
use super::rows::Rows;
use super::sample::Sample;
use super::top_k::{TakeAlong, TopK};
use super::{Engine, EngineId};
use crate::base::Format;
use crate::base::platform::BROWSER;
use crate::error::{Error, Result};

/// Maximum number of similar ids suggested for an unknown one.
const MOST_NEAREST: usize = 8;

/// A list of engines with unique ids. Third-party engines can be added.
#[derive(Clone)]
pub struct Registry {
    engines: Vec<Arc<dyn Engine>>,
}

crate::base::debug_as!(Registry, |this| engines: this.engines.len());

impl Registry {
    /// Creates a registry of the engines of this crate.
    pub fn builtin() -> Registry {
        let mut engines: Vec<Arc<dyn Engine>> = Vec::new();
        for format in Format::ALL.into_iter().chain(Format::KEPT) {
            engines.extend(Linear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(CodesLinear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(Experts::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
        }
        // They would never be chosen in a browser; the constant keeps them out of the download.
        if !BROWSER {
            engines.extend(Registry::of_native_hardware());
        }
        engines.extend(Rows::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.extend(Attention::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.extend(Gather::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.extend(Conv::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.push(Arc::new(Reduce::new(true)));
        engines.push(Arc::new(Reduce::new(false)));
        engines.push(Arc::new(SplitArgMax::new()));
        engines.push(Arc::new(SplitAttention::new()));
        engines.push(Arc::new(LanesAttention::new()));
        engines.push(Arc::new(Rope::new()));
        engines.push(Arc::new(MatMul::new()));
        engines.push(Arc::new(Tiles::new()));
        engines.push(Arc::new(Elementwise::new()));
        engines.extend(elementwise::Rows::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.push(Arc::new(Scatter::new()));
        engines.push(Arc::new(IndexAdd::new()));
        engines.push(Arc::new(DeltaRule::new()));
        engines.push(Arc::new(TopK::new()));
        // Language models do not sort; their module for browsers has no kernels for it.
        if !BROWSER || cfg!(feature = "packs") {
            engines.push(Arc::new(ArgSort::new()));
            engines.push(Arc::new(IntegerReduce::new()));
        }
        engines.push(Arc::new(TakeAlong::new()));
        engines.push(Arc::new(CopyInto::new()));
        engines.push(Arc::new(Sample::new()));
        engines.push(Arc::new(Custom::new()));
        Registry { engines }
    }

    /// Creates the engines of what browsers do not expose: matrix hardware, GEMM libraries, and memory
    /// that is ordered between workgroups.
    fn of_native_hardware() -> Vec<Arc<dyn Engine>> {
        let mut engines: Vec<Arc<dyn Engine>> = Vec::new();
        for format in Format::ALL.into_iter().chain(Format::KEPT) {
            engines.extend(TilesLinear::of(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(CoopLinear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(ExpertTiles::of(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
        }
        engines.push(Arc::new(SpreadAttention::new()));
        engines.push(Arc::new(CoopAttention::new()));
        engines.push(Arc::new(CoopProduct::new()));
        engines.push(Arc::new(CoopProduct::with_f16_accumulate()));
        engines.push(Arc::new(Library::new()));
        engines
    }

    /// Adds an engine.
    ///
    /// # Errors
    /// Invalid if its id is registered already.
    pub fn add(&mut self, engine: Arc<dyn Engine>) -> Result<()> {
        if self.get(engine.id()).is_some() {
            return Err(Error::invalid(format!("engine {} is already registered", engine.id())));
        }
        self.engines.push(engine);
        Ok(())
    }

    /// Returns every engine, in order of addition.
    pub fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    /// Returns the engine with this id.
    pub fn get(&self, id: &EngineId) -> Option<&Arc<dyn Engine>> {
        self.engines.iter().find(|engine| engine.id() == id)
    }

    /// Builds the error for an unknown id, with the ids that share the longest prefix with it.
    pub(crate) fn unknown(&self, id: &EngineId) -> Error {
        let id = id.as_str();
        let alike = |other: &str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let ids = || self.engines.iter().map(|engine| engine.id().as_str());
        let most = ids().map(alike).max().unwrap_or(0);
        let mut text = format!("no engine {id:?} is registered");
        // A shorter common prefix does not suggest a similar id.
        if most >= 3 {
            let mut nearest: Vec<&str> = ids().filter(|other| alike(other) == most).collect();
            let more = if nearest.len() > MOST_NEAREST { " ..." } else { "" };
            nearest.truncate(MOST_NEAREST);
            text += &format!("; there is {}{more}", nearest.join(", "));
        } else {
            let family = |other: &str| other.split('.').next().unwrap_or_default().to_owned();
            let families: BTreeSet<String> = ids().map(family).collect();
            let families: Vec<String> = families.into_iter().collect();
            text += &format!("; ids begin with {}", families.join(", "));
        }
        Error::invalid(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        let registry = Registry::builtin();
        let mut ids: Vec<_> = registry.engines().iter().map(|e| e.id().clone()).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
        let mut registry = registry;
        assert!(registry.add(Arc::new(Rope::new())).is_err());
    }

    #[test]
    fn an_unknown_id_is_answered_with_the_nearest() {
        let message = |id| Registry::builtin().unknown(&EngineId::new(id)).to_string();
        let attention = message("catalogue.attention");
        assert!(attention.contains("there is catalogue.attn_"), "{attention}");
        let many = message("wgsl.matvec");
        assert!(many.contains("wgsl.matvec.") && many.ends_with(" ..."), "{many}");
        let none = message("magic");
        assert!(none.starts_with("no engine \"magic\" is registered; ids begin with "), "{none}");
        assert!(none.contains("catalogue, "), "{none}");
    }
}
