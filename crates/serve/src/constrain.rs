//! What constrains an answer: its format, and the calls that it may or must have.

use super::answer::Kind;
use super::error::ApiError;
use super::guard::{Begin, Guard};
use super::request::{Choice, ResponseFormat};
use super::service::Shared;
use super::tools::grammar::{Calls, final_message};
use super::tools::{Format, Thoughts, Tool};
use warploom_llm::structure::{Constraint, Grammar};

/// The schema of any object.
const ANY_OBJECT: &str = "{\"type\":\"object\"}";

/// What a request wants of an answer.
pub(super) struct Wanted {
    /// The interface, whose fields errors name.
    pub(super) kind: Kind,
    pub(super) format: ResponseFormat,
    pub(super) choice: Choice,
    pub(super) parallel: bool,
    pub(super) calls: Option<(&'static Format, Vec<Tool>)>,
    pub(super) thoughts: Thoughts,
}

/// The constraint of a request, not yet compiled.
pub(super) struct Plan(Option<Wanted>);

impl Plan {
    pub(super) fn none() -> Plan {
        Plan(None)
    }

    pub(super) fn new(wanted: Wanted) -> Plan {
        let is_free = wanted.format == ResponseFormat::Text && wanted.calls.is_none();
        Plan((!is_free).then_some(wanted))
    }

    /// Returns whether there is nothing to compile.
    pub(super) fn is_free(&self) -> bool {
        self.0.is_none()
    }

    /// Compiles the constraint.
    ///
    /// # Errors
    /// 400, naming the schema that is not valid or not supported.
    pub(super) fn compile(self, shared: &Shared) -> Result<Option<Guard>, ApiError> {
        let Some(wanted) = self.0 else { return Ok(None) };
        let begin = match wanted.thoughts {
            Thoughts::Open => Begin::After("</think>".into()),
            Thoughts::None | Thoughts::Maybe | Thoughts::Channels => Begin::Start,
        };
        let Some((format, tools)) = &wanted.calls else {
            let constraint = answer(shared, &wanted)?;
            return Ok(Some(Guard::new(constraint).begin(begin)));
        };
        let tools = match wanted.choice {
            Choice::Named(index) => tools.get(index..=index).unwrap_or_default(),
            _ => tools.as_slice(),
        };
        let is_free = wanted.choice == Choice::Auto && wanted.format == ResponseFormat::Text;
        let job = Compile { shared, format, tools, wanted: &wanted, is_free };
        let constraint = job.compile()?;
        let begin = match (is_free, format.start) {
            (false, _) => begin,
            (true, "") => Begin::AfterFirst(job.calls(&[]).marker().into()),
            (true, _) => Begin::After(job.calls(&[]).marker().into()),
        };
        let has_marker_each = !format.start.is_empty() && !format.is_list();
        let repeats = is_free && wanted.parallel && has_marker_each;
        Ok(Some(Guard::new(constraint).begin(begin).repeats(repeats)))
    }
}

/// Compiles the constraint of an answer without calls.
fn answer(shared: &Shared, wanted: &Wanted) -> Result<Constraint, ApiError> {
    let compiled = match (&wanted.format, wanted.thoughts) {
        (format, Thoughts::Channels) => {
            let schema = match format {
                ResponseFormat::JsonSchema(schema) => schema.as_str(),
                ResponseFormat::JsonObject | ResponseFormat::Text => ANY_OBJECT,
            };
            Grammar::lark_of_schema(schema).and_then(|schema| {
                let rule = final_message(&shared.controls, "content");
                let rules = format!("start: {rule}\ncontent: {schema}\n");
                shared.grammars.compile(&Grammar::Lark(rules))
            })
        }
        (ResponseFormat::JsonSchema(schema), _) => {
            shared.grammars.compile(&Grammar::JsonSchema(schema.clone()))
        }
        (ResponseFormat::JsonObject | ResponseFormat::Text, _) => {
            shared.grammars.compile(&Grammar::JsonObject)
        }
    };
    compiled.map_err(|e| wrong_schema(wanted.kind.schema_field(), &e))
}

fn wrong_schema(field: impl Into<String>, error: &warploom::Error) -> ApiError {
    ApiError::field(field, error.to_string()).code("invalid_schema")
}

struct Compile<'a> {
    shared: &'a Shared,
    format: &'static Format,
    tools: &'a [Tool],
    wanted: &'a Wanted,
    /// Whether the answer is only constrained from the marker of a call on.
    is_free: bool,
}

impl Compile<'_> {
    fn calls<'b>(&'b self, loose: &'b [bool]) -> Calls<'b> {
        Calls {
            format: self.format,
            tools: self.tools,
            loose,
            parallel: self.wanted.parallel && (!self.is_free || self.format.is_list()),
            after_marker: self.is_free,
            controls: &self.shared.controls,
        }
    }

    /// Compiles calls; an answer that may also be without calls follows its format then.
    fn grammar(&self, tools: &[Tool], loose: &[bool]) -> warploom::Result<Constraint> {
        let calls = Calls { tools, ..self.calls(loose) }.lark()?;
        let content = match (&self.wanted.format, &self.wanted.choice) {
            (ResponseFormat::JsonSchema(schema), Choice::Auto) => schema.as_str(),
            (ResponseFormat::JsonObject, Choice::Auto) => ANY_OBJECT,
            _ => return self.shared.grammars.compile(&Grammar::Lark(calls)),
        };
        let content = Grammar::lark_of_schema(content)?;
        let rules = calls.strip_prefix("start:").unwrap_or(&calls);
        let other = self.calls(loose).content("content");
        let rules =
            format!("start: calls | other\nother: {other}\ncontent: {content}\ncalls:{rules}");
        self.shared.grammars.compile(&Grammar::Lark(rules))
    }

    fn compile(&self) -> Result<Constraint, ApiError> {
        let strict = vec![false; self.tools.len()];
        let error = match self.grammar(self.tools, &strict) {
            Ok(constraint) => return Ok(constraint),
            Err(error) => error,
        };
        if self.wanted.format != ResponseFormat::Text {
            answer(self.shared, self.wanted)?;
        }
        // Which of the schemas is it?
        let mut loose = strict;
        for (index, tool) in self.tools.iter().enumerate() {
            let one = Grammar::JsonSchema(
                tool.parameters.as_ref().map_or("true".into(), |schema| schema.to_string()),
            );
            let alone = std::slice::from_ref(tool);
            let found = self.shared.grammars.compile(&one).err();
            let found = found.or_else(|| self.grammar(alone, &[false]).err());
            let Some(error) = found else { continue };
            // Without `strict`, a call that is not forced follows the schema as far as possible.
            if tool.strict || !self.is_free {
                let at = match self.wanted.choice {
                    Choice::Named(named) => named,
                    _ => index,
                };
                let field = format!("tools[{at}].{}", self.wanted.kind.parameters_field());
                return Err(wrong_schema(field, &error));
            }
            tracing::debug!(tool = tool.name, %error, "its arguments may be any object");
            if let Some(loose) = loose.get_mut(index) {
                *loose = true;
            }
        }
        match loose.contains(&true) {
            true => self.grammar(self.tools, &loose).map_err(|e| wrong_schema("tools", &e)),
            false => Err(wrong_schema("tools", &error)),
        }
    }
}
