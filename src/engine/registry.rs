//! Every engine there is, and how one is found.

use std::sync::Arc;

use super::argmax::SplitArgMax;
use super::attention::{Attention, Rope};
use super::attention_coop::CoopAttention;
use super::attention_lanes::LanesAttention;
use super::attention_split::SplitAttention;
use super::attention_spread::SpreadAttention;
use super::conv::Conv;
use super::custom::Custom;
use super::elementwise::{self, Elementwise};
use super::library::Library;
use super::linear::Linear;
use super::linear_codes::CodesLinear;
use super::linear_coop::CoopLinear;
use super::linear_tiles::TilesLinear;
use super::matmul::{MatMul, Tiles};
use super::movement::{CopyInto, Gather, Scatter};
use super::product_coop::CoopProduct;
use super::reduce::Reduce;
use super::rows::Rows;
use super::sample::Sample;
use super::{Engine, EngineId};
use crate::base::Format;
use crate::error::{Error, Result};

/// A list of engines in which each id occurs once. Others' engines are added to it.
#[derive(Clone)]
pub struct Registry {
    engines: Vec<Arc<dyn Engine>>,
}

crate::base::debug_as!(Registry, |this| engines: this.engines.len());

impl Registry {
    /// The engines of this crate.
    pub fn builtin() -> Registry {
        let mut engines: Vec<Arc<dyn Engine>> = Vec::new();
        for format in Format::ALL.into_iter().chain(Format::KEPT) {
            engines.extend(Linear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(CodesLinear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(TilesLinear::of(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
            engines.extend(CoopLinear::all(format).map(|e| Arc::new(e) as Arc<dyn Engine>));
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
        engines.push(Arc::new(SpreadAttention::new()));
        engines.push(Arc::new(CoopAttention::new()));
        engines.push(Arc::new(Rope::new()));
        engines.push(Arc::new(MatMul::new()));
        engines.push(Arc::new(Tiles::new()));
        engines.push(Arc::new(CoopProduct::new()));
        engines.push(Arc::new(CoopProduct::with_half_sums()));
        engines.push(Arc::new(Library::new()));
        engines.push(Arc::new(Elementwise::new()));
        engines.extend(elementwise::Rows::all().map(|e| Arc::new(e) as Arc<dyn Engine>));
        engines.push(Arc::new(Scatter::new()));
        engines.push(Arc::new(CopyInto::new()));
        engines.push(Arc::new(Sample::new()));
        engines.push(Arc::new(Custom::new()));
        Registry { engines }
    }

    /// Adds an engine.
    ///
    /// # Errors
    /// Invalid, when its id is taken.
    pub fn add(&mut self, engine: Arc<dyn Engine>) -> Result<()> {
        if self.get(engine.id()).is_some() {
            return Err(Error::invalid(format!("engine {} is there already", engine.id())));
        }
        self.engines.push(engine);
        Ok(())
    }

    /// Every engine, in the order they were added.
    pub fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    /// The engine of an id.
    pub fn get(&self, id: &EngineId) -> Option<&Arc<dyn Engine>> {
        self.engines.iter().find(|engine| engine.id() == id)
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
}
