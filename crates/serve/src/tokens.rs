//! Endpoints about the model: its tokens and its properties.

use serde_json::{Value, json};

use super::error::ApiError;
use super::prepare::{check_size, check_tokens, render};
use super::request;
use super::service::Shared;
use warploom_llm::chat::TemplateInputs;
use warploom_llm::tokenizer::EncodeOptions;

/// Encodes a text (`prompt` in vLLM, `content` in llama.cpp) or a conversation (`messages`).
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn tokenize(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let mut fields = request::object(body)?;
    fields.ignore(&["model"]);
    let prompt = match fields.text("prompt")? {
        Some(text) => Some(text),
        None => fields.text("content")?,
    };
    let tokenizer = shared.model.tokenizer();
    let add = fields.optional_flag("add_special_tokens")?;
    let tokens = match prompt {
        Some(text) => {
            let parse = fields.optional_flag("parse_special")?.unwrap_or(true);
            fields.end()?;
            check_size(shared, "prompt", text.len())?;
            let options =
                EncodeOptions::default().add_bos(add.unwrap_or(true)).parse_special(parse);
            let tokens = tokenizer.encode(&text, options);
            tokens.map_err(|e| ApiError::field("prompt", e.to_string()))?
        }
        None => {
            let messages = request::messages(&mut fields)?;
            fields.only("add_generation_prompt", &[json!(true)])?;
            fields.end()?;
            let template = shared.template.as_ref();
            let template =
                template.map_err(|text| ApiError::new(400, text.as_str()).code("no_chat"))?;
            render(shared, template, &TemplateInputs::new(&messages), "messages")?.0
        }
    };
    Ok(json!({ "count": tokens.len(), "max_model_len": shared.context, "tokens": tokens }))
}

/// Decodes tokens.
///
/// # Errors
/// 400, naming the field that is not valid.
pub(super) fn detokenize(shared: &Shared, body: &[u8]) -> Result<Value, ApiError> {
    let mut fields = request::object(body)?;
    fields.ignore(&["model"]);
    let tokens = match fields.take("tokens") {
        Some(Value::Array(list)) => request::tokens(&list),
        _ => None,
    };
    let tokens = tokens.ok_or_else(|| ApiError::field("tokens", "must be a list of tokens"))?;
    fields.end()?;
    check_tokens(shared, "tokens", &tokens)?;
    let text = shared.model.tokenizer().decode(&tokens);
    let text = text.map_err(|e| ApiError::field("tokens", e.to_string()))?;
    Ok(json!({ "prompt": text, "content": text }))
}

/// Returns the properties of the server and its model, with llama.cpp's names.
pub(super) fn props(shared: &Shared) -> Value {
    let template = shared.template.as_ref().ok();
    let sampling = &shared.options.sampling;
    json!({
        "model_alias": shared.name,
        "total_slots": shared.sequences,
        "chat_template": template.map(|template| template.source()),
        "build_info": concat!("warploom ", env!("CARGO_PKG_VERSION")),
        "default_generation_settings": {
            "n_ctx": shared.context,
            "params": {
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
                "repeat_penalty": sampling.repetition_penalty,
                "repeat_last_n": sampling.repeat_last_n,
            },
        },
    })
}
