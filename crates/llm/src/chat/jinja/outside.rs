//! Converts JSON from outside the template to values, keeping the order of object keys.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::meter::MAX_DEPTH;
use super::value::{Value, dict_of_values};

/// Maximum number of keys in one object.
const MAX_NAMES: usize = 4096;

impl Value {
    /// Parses JSON from outside the template; `None` if it is invalid, nested too deeply or has too
    /// many keys in an object.
    pub(in crate::chat) fn outside_json(text: &str) -> Option<Value> {
        let mut from = serde_json::Deserializer::from_str(text);
        let value = Reader { depth: 0 }.deserialize(&mut from).ok()?;
        from.end().is_ok().then_some(value)
    }
}

#[derive(Clone, Copy)]
struct Reader {
    depth: u32,
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom("nested too deep"));
        }
        from.deserialize_any(Reader { depth: self.depth + 1 })
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::outside(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            all.push(item);
        }
        Ok(Value::list_of(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all: Vec<(Value, Value)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        while let Some(key) = items.next_key::<String>()? {
            if all.len() >= MAX_NAMES {
                return Err(A::Error::custom("too many names in an object"));
            }
            let value = items.next_value_seed(self)?;
            // The last value of a repeated key is kept, as in Python.
            match places.get(&key) {
                Some(place) => all[*place] = (Value::outside(&key), value),
                None => {
                    all.push((Value::outside(&key), value));
                    places.insert(key, all.len() - 1);
                }
            }
        }
        Ok(dict_of_values(all))
    }
}
