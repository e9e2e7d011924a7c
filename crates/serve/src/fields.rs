//! Reads the fields of a JSON object: each is taken once and checked, and remaining fields are
//! refused.

use serde_json::{Map, Value};

use super::error::ApiError;

/// A JSON object of a request. A field that is `null` counts as absent, as in the OpenAI API.
pub(super) struct Fields {
    map: Map<String, Value>,
    /// Path of the object in errors, such as `messages[2]`; empty for the body.
    path: String,
}

impl Fields {
    /// Takes the fields of `value`, whose path in errors is `path`.
    ///
    /// # Errors
    /// 400 if `value` is not an object.
    pub(super) fn new(value: Value, path: impl Into<String>) -> Result<Fields, ApiError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Fields { map, path }),
            other => {
                let text = format!("must be an object, is {}", kind(&other));
                Err(match path.is_empty() {
                    true => ApiError::new(400, format!("the body {text}")),
                    false => ApiError::field(path, text),
                })
            }
        }
    }

    /// Returns the full path of a field.
    pub(super) fn name(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    fn wrong(&self, name: &str, want: &str, got: &Value) -> ApiError {
        ApiError::field(self.name(name), format!("must be {want}, is {}", kind(got)))
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Returns a field, which stays to be taken.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    /// Takes a flag that may be absent.
    pub(super) fn optional_flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, "true or false", &other)),
        }
    }

    /// Takes a field that is an integer from `low` to `high`.
    pub(super) fn count_to(
        &mut self,
        name: &str,
        low: usize,
        high: usize,
    ) -> Result<Option<usize>, ApiError> {
        match self.map.get(name).and_then(Value::as_u64) {
            Some(number) if number > high as u64 || number < low as u64 => {
                let want = format!("an integer from {low} to {high}");
                Err(self.wrong(name, &want, &number.into()))
            }
            _ => self.count(name, low),
        }
    }

    /// Takes a field that is a number from `low` to `high`.
    pub(super) fn number(
        &mut self,
        name: &str,
        low: f32,
        high: f32,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let want = format!("a number from {low} to {high}");
        match value.as_f64() {
            Some(number) if (f64::from(low)..=f64::from(high)).contains(&number) => {
                Ok(Some(number as f32))
            }
            _ => Err(self.wrong(name, &want, &value)),
        }
    }

    /// Takes a field that is an integer of at least `low`; values beyond `usize` saturate.
    pub(super) fn count(&mut self, name: &str, low: usize) -> Result<Option<usize>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if number >= low as u64 => {
                Ok(Some(usize::try_from(number).unwrap_or(usize::MAX)))
            }
            _ => Err(self.wrong(name, &format!("an integer of at least {low}"), &value)),
        }
    }

    /// Takes a field that is an integer of at least `low`, or -1 for no limit, returned as
    /// `Some(None)`.
    pub(super) fn limit(
        &mut self,
        name: &str,
        low: usize,
    ) -> Result<Option<Option<usize>>, ApiError> {
        match self.map.get(name).and_then(Value::as_i64) {
            Some(-1) => {
                self.map.remove(name);
                Ok(Some(None))
            }
            Some(number) if number < low as i64 => {
                let want = format!("an integer of at least {low}, or -1 for no limit");
                Err(self.wrong(name, &want, &number.into()))
            }
            _ => Ok(self.count(name, low)?.map(Some)),
        }
    }

    /// Takes a field that is any 64-bit integer, signed or unsigned; -1 counts as absent, as in
    /// other servers.
    pub(super) fn seed(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match (value.as_u64(), value.as_i64()) {
            (_, Some(-1)) => Ok(None),
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(seed)) => Ok(Some(seed as u64)),
            _ => Err(self.wrong(name, "a 64-bit integer", &value)),
        }
    }

    /// Takes an unsupported field and accepts only the values in `fine`, which have no effect.
    pub(super) fn only(&mut self, name: &str, fine: &[Value]) -> Result<(), ApiError> {
        let Some(value) = self.take(name) else { return Ok(()) };
        // 0 and 0.0 are the same number to a client.
        let same = |a: &Value| *a == value || (a.is_number() && a.as_f64() == value.as_f64());
        match fine.iter().any(same) {
            true => Ok(()),
            false => Err(ApiError::field(self.name(name), "is not supported").code("unsupported")),
        }
    }

    /// Drops fields that have no effect on the answer.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.remove(*name);
        }
    }

    /// Checks that no field is left.
    ///
    /// # Errors
    /// 400 if one is, because it would be ignored silently.
    pub(super) fn end(self) -> Result<(), ApiError> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(ApiError::field(self.name(name), "is not a known field").code("unknown_field"))
            }
        }
    }
}

/// Returns whether a value is empty, so that ignoring it has no effect.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Describes a value in a few words, for errors.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".into(),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".into(),
    }
}
