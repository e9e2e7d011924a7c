//! Scopes of variables.

use std::cell::RefCell;
use std::rc::Rc;

use super::meter::{Meter, Result};
use super::value::Value;

/// The variables of a loop iteration, a macro call or the template, and the enclosing scope.
#[derive(Debug, Default)]
pub(in crate::chat) struct Scope {
    names: RefCell<Vec<(Rc<str>, Value)>>,
    around: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn within(around: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { names: RefCell::default(), around: Some(around.clone()) })
    }

    pub(super) fn set(&self, name: &str, value: Value) {
        let mut names = self.names.borrow_mut();
        match names.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, place)) => *place = value,
            None => names.push((name.into(), value)),
        }
    }

    pub(super) fn find(&self, name: &str, meter: &Meter) -> Result<Option<Value>> {
        let mut scope = Some(self);
        while let Some(here) = scope {
            let names = here.names.borrow();
            meter.step(1 + names.len() as u64 / 8)?;
            if let Some((_, value)) = names.iter().find(|(known, _)| **known == *name) {
                return Ok(Some(value.clone()));
            }
            scope = here.around.as_deref();
        }
        Ok(None)
    }

    /// Drops all names, which breaks reference cycles.
    pub(super) fn clear(&self) {
        self.names.take();
    }
}
