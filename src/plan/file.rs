//! Plans as files: a line that says what it is, then JSON, trusted in nothing.
//!
//! ```text
//! warploom-plan 1 <blake3 of the rest, in hex> <bytes of the rest>
//! {"name":..}
//! ```
//!
//! The magic word of a plan over several devices is `warploom-partitioned-plan`.
//!
//! The checksum finds damage, not malice: a file from others is verified like any input. Every
//! index, range and size that the host or a device's checks rely on is in bounds after
//! [`Plan::load`]. The kernels themselves are programs, and a GPU runs them without bounds checks
//! of its own: load plans from where you would load programs from.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{PartitionedPlan, Plan};
use crate::error::{Error, Result};

const MAGIC: &str = "warploom-plan";
const PARTITIONED_MAGIC: &str = "warploom-partitioned-plan";
const VERSION: u32 = 1;

/// Bytes of a file. Weights are not in it.
const MAX_BYTES: usize = 256 << 20;
/// Bytes of the first line.
const MAX_HEAD: usize = 128;

impl Plan {
    /// The bytes of a plan file. One plan always gives the same bytes.
    ///
    /// # Errors
    /// Invalid where the plan is: only what can be loaded is saved.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        write(MAGIC, &self.name, self)
    }

    /// The plan in the bytes of a file.
    ///
    /// # Errors
    /// Bad file, saying what is wrong and where: not a plan file, another version, damaged, or a
    /// plan that breaks a rule of [`Plan::verify`].
    pub fn load(bytes: &[u8]) -> Result<Plan> {
        let plan: Plan = read(MAGIC, bytes)?;
        plan.verify().map_err(|e| bad(e.to_string()))?;
        Ok(plan)
    }
}

impl PartitionedPlan {
    /// The bytes of a plan file, as [`Plan::save`].
    ///
    /// # Errors
    /// As [`Plan::save`].
    pub fn save(&self) -> Result<Vec<u8>> {
        self.verify()?;
        write(PARTITIONED_MAGIC, &self.name, self)
    }

    /// The plan in the bytes of a file.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn load(bytes: &[u8]) -> Result<PartitionedPlan> {
        let plan: PartitionedPlan = read(PARTITIONED_MAGIC, bytes)?;
        plan.verify().map_err(|e| bad(e.to_string()))?;
        Ok(plan)
    }
}

fn bad(what: String) -> Error {
    Error::bad_file(format!("plan file: {what}"))
}

fn write(magic: &str, name: &str, plan: &impl Serialize) -> Result<Vec<u8>> {
    let body = serde_json::to_vec(plan)
        .map_err(|e| Error::invalid(format!("plan {name} cannot be written")).with_source(e))?;
    let hash = blake3::hash(&body).to_hex();
    let mut bytes = format!("{magic} {VERSION} {hash} {}\n", body.len()).into_bytes();
    bytes.extend(body);
    Ok(bytes)
}

fn read<P: DeserializeOwned>(expected: &str, bytes: &[u8]) -> Result<P> {
    if bytes.len() > MAX_BYTES {
        return Err(bad(format!("{} bytes, at most {MAX_BYTES}", bytes.len())));
    }
    let (head, body) = split(bytes).map_err(bad)?;
    let words: Vec<&str> = head.split(' ').collect();
    let &[magic, version, hash, length] = &words[..] else {
        return Err(bad(format!("offset 0: {} words in the first line, not 4", words.len())));
    };
    if magic != expected {
        return Err(bad(format!("offset 0: the magic word is {magic:?}, not {expected:?}")));
    }
    if version != VERSION.to_string() {
        return Err(bad(format!("version {version}, this build reads {VERSION}")));
    }
    let at = bytes.len() - body.len();
    if length != body.len().to_string() {
        let have = body.len();
        return Err(bad(format!("{have} bytes from offset {at} on, not {length}")));
    }
    if hash != blake3::hash(body).to_hex().as_str() {
        return Err(bad(format!("the bytes from offset {at} on do not match the checksum")));
    }
    serde_json::from_slice(body).map_err(|e| {
        // The body is one line, unless somebody wrote it by hand.
        bad(format!("line {}, column {}: {e}", e.line() + 1, e.column()))
    })
}

/// The first line and what follows it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let end = bytes.iter().take(MAX_HEAD).position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| format!("offset 0: no first line in {MAX_HEAD} bytes"))?;
    let head = std::str::from_utf8(&bytes[..end])
        .map_err(|e| format!("offset {}: the first line is not text", e.valid_up_to()))?;
    Ok((head, &bytes[end + 1..]))
}
