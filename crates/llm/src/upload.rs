//! Uploads the weights of a model to a device, and allocates its KV cache there.

use super::builder::OnUpload;
use super::decoder::{self, DecoderInput, DecoderOutput};
use super::planner::DeviceModel;
use super::weights::{self, Weight};
use warploom::plan::merged_weights;
use warploom::runtime::{DeviceTensors, WeightSource};
use warploom::{Error, Result};

/// Returns an out-of-memory error if weights and KV cache cannot fit on the device.
pub(super) fn check_memory(on: &DeviceModel) -> Result<()> {
    let (model, cache) = (&on.model, on.cache);
    let need =
        model.weight_bytes() + model.cache_bytes_per_token(cache.dtype) * cache.rows() as u64;
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

/// Uploads the weights and allocates the KV cache. Between groups of weights, other futures on the
/// calling thread may run. `progress` receives the uploaded bytes and their total.
pub(super) async fn upload(on: &DeviceModel, progress: &mut OnUpload<'_>) -> Result<DeviceTensors> {
    let (model, pool, device) = (&on.model, on.runtime.pool(), &**on.runtime.device());
    let mut tensors = DeviceTensors::new();
    let total = model.weight_bytes();
    let mut done = 0;
    for group in groups(on)? {
        let bytes: Vec<_> = group
            .iter()
            .map(|weight| weights::bytes(model.file(), model.config(), weight))
            .collect::<Result<_>>()?;
        let named = group.iter().zip(&bytes);
        let sources: Vec<WeightSource> =
            named.map(|(weight, bytes)| WeightSource { name: &weight.name, bytes }).collect();
        tensors.upload(pool, device, &sources, &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
        let_others_run().await;
    }
    let elements = (on.cache.rows() * model.config().kv_width()) as u64;
    let bytes = (elements * on.cache.dtype.bytes()).next_multiple_of(4);
    let layers = 0..model.config().layers;
    let caches: Vec<String> =
        layers.flat_map(|layer| ['k', 'v'].map(|kind| decoder::cache_name(kind, layer))).collect();
    let mut states: Vec<_> = caches.iter().map(|name| (name.as_str(), bytes)).collect();
    states.push((decoder::CHOSEN, (on.cache.sequences * 4) as u64));
    tensors.states(pool, device, &states)?;
    Ok(tensors)
}

/// Returns all weights in groups: weights that plans read as one are in the same group.
fn groups(on: &DeviceModel) -> Result<Vec<Vec<&Weight>>> {
    let (input, output) = (DecoderInput::Tokens, DecoderOutput::Logits);
    let graph = on.model.graph_with(&on.weights, on.cache, input, output)?;
    let merged = merged_weights(&graph, on.runtime.device().profile())?;
    let mut groups: Vec<Vec<&Weight>> = Vec::new();
    for weight in &on.weights {
        let find = |names: &&Vec<String>| names.contains(&weight.name);
        match merged.iter().find(find) {
            None => groups.push(vec![weight]),
            // The whole group is at the position of its first weight.
            Some(names) if groups.iter().flatten().any(|w| names.contains(&w.name)) => {}
            Some(names) => {
                let of = |name: &String| on.weights.iter().find(|w| w.name == *name);
                groups.push(names.iter().filter_map(of).collect());
            }
        }
    }
    Ok(groups)
}

/// Yields to the executor once.
async fn let_others_run() {
    let mut begun = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut begun, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
