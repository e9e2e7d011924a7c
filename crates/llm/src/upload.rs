//! Uploads the weights of a model to a device, and allocates its KV cache there.

use super::builder::OnUpload;
use super::decoder::{self, DecoderInput, DecoderOutput};
use super::model::Model;
use super::planner::DeviceModel;
use super::prefix;
use super::weights::{self, Weight};
use warploom::graph::Graph;
use warploom::plan::merged_weights;
use warploom::runtime::{DeviceTensors, Runtime};
use warploom::{Error, Result};
use warploom_core::base::platform;

/// Returns an out-of-memory error if weights and KV cache cannot fit on the device.
pub(super) fn check_memory(on: &DeviceModel) -> Result<()> {
    let (model, cache) = (&on.model, on.cache);
    let need = model.weight_bytes()
        + model.cache_bytes_per_token(cache.dtype) * cache.rows() as u64
        + model.state_bytes() * cache.sequences as u64;
    let budget = on.runtime.pool().budget();
    let have = budget.or(match on.runtime.device().profile().memory_bytes {
        0 => None,
        bytes => Some(bytes),
    });
    match have {
        Some(have) if need > have => {
            let what = format!(
                "weights and a cache of {} positions of {} on {}",
                cache.rows(),
                model.file().name(),
                on.runtime.device().profile().id()
            );
            Err(Error::out_of_memory(what, need, have))
        }
        _ => Ok(()),
    }
}

/// Returns an out-of-memory error if the weights of a model cannot fit on a device.
pub(super) fn check_weights(runtime: &Runtime, model: &Model) -> Result<()> {
    let profile = runtime.device().profile();
    let have =
        runtime.pool().budget().or((profile.memory_bytes > 0).then_some(profile.memory_bytes));
    match (model.weight_bytes(), have) {
        (need, Some(have)) if need > have => {
            let what = format!("weights of {} on {}", model.file().name(), profile.id());
            Err(Error::out_of_memory(what, need, have))
        }
        _ => Ok(()),
    }
}

/// Uploads the weights in pieces and allocates the KV cache, so that only one piece of a file that
/// is read on demand is in host memory at a time. Between pieces, other futures on the calling
/// thread may run. `progress` receives the uploaded bytes and their total.
pub(super) async fn upload(on: &DeviceModel, progress: &mut OnUpload<'_>) -> Result<DeviceTensors> {
    let (model, pool, device) = (&on.model, on.runtime.pool(), &**on.runtime.device());
    let (input, output) = (DecoderInput::Tokens, DecoderOutput::Logits);
    let graph = on.model.graph_with(&on.weights, on.cache, input, output)?;
    let mut tensors = weights_of(&on.runtime, model, &on.weights, &graph, progress).await?;
    let states = prefix::states(on);
    let states = states.iter().map(|s| (s.name.clone(), s.bytes(on).next_multiple_of(4)));
    let mut states: Vec<(String, u64)> = states.collect();
    states.push((decoder::CHOSEN.into(), (on.cache.sequences * 4) as u64));
    let states: Vec<_> = states.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    tensors.states(pool, device, &states)?;
    Ok(tensors)
}

/// Uploads the weights in pieces, as [`upload`] does. `graph` is a graph of the plans that will read
/// them.
pub(super) async fn weights_of(
    runtime: &Runtime,
    model: &Model,
    weights: &[Weight],
    graph: &Graph,
    progress: &mut OnUpload<'_>,
) -> Result<DeviceTensors> {
    let (pool, device) = (runtime.pool(), &**runtime.device());
    let mut tensors = DeviceTensors::new();
    let total = model.weight_bytes();
    let mut done = 0;
    for group in groups(runtime, weights, graph)? {
        let sizes = group.iter().map(|weight| Ok((weight.name.as_str(), weight.bytes()?)));
        tensors.allocate(pool, &sizes.collect::<Result<Vec<_>>>()?)?;
        for weight in group {
            let mut offset = 0;
            for piece in weights::pieces(model.file(), model.config(), weight)? {
                let bytes = piece?;
                tensors.write(device, &weight.name, offset, &bytes)?;
                offset += bytes.len() as u64;
                done += bytes.len() as u64;
                progress(done, total);
                drop(bytes);
                platform::let_others_run().await;
            }
        }
    }
    Ok(tensors)
}

/// Returns all weights in groups: weights that plans of `graph` read as one are in the same group.
fn groups<'a>(
    runtime: &Runtime,
    weights: &'a [Weight],
    graph: &Graph,
) -> Result<Vec<Vec<&'a Weight>>> {
    let merged = merged_weights(graph, runtime.device().profile())?;
    let mut groups: Vec<Vec<&Weight>> = Vec::new();
    for weight in weights {
        let find = |names: &&Vec<String>| names.contains(&weight.name);
        match merged.iter().find(find) {
            None => groups.push(vec![weight]),
            // The whole group is at the position of its first weight.
            Some(names) if groups.iter().flatten().any(|w| names.contains(&w.name)) => {}
            Some(names) => {
                let of = |name: &String| weights.iter().find(|w| w.name == *name);
                groups.push(names.iter().filter_map(of).collect());
            }
        }
    }
    Ok(groups)
}
