//! Functions: what `--call` and the field `call` name.

use super::args::PlanArgs;
use super::error::PlanError;
use super::source;
use falkon_wire::command::Function;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The language of functions, unless the user says otherwise.
pub(crate) const LANGUAGE_DEFAULT: &str = "python";
/// The longest source text that is shipped, in bytes.
const SOURCE_BYTES_MAX: u64 = 8 << 20;

/// The function that the command line names, if it does. The source text of
/// `FILE.py:FUNCTION` is read here and shipped.
///
/// # Errors
/// It names none, or its file cannot be read, or options stand beside it that
/// a function has no use for.
pub(crate) fn function(args: &PlanArgs) -> Result<Option<Arc<Function>>, PlanError> {
    let Some(text) = &args.call else { return Ok(None) };
    let language = args.language.as_deref().unwrap_or(LANGUAGE_DEFAULT);
    for (given, other) in
        [(args.options.shell, "--shell"), (args.options.stdin.is_some(), "--stdin")]
    {
        if given {
            return Err(PlanError::CallWith { other });
        }
    }
    if let Some(other) = args.options.setup.given() {
        return Err(PlanError::CallWith { other });
    }
    let mut function = named(language, text)?;
    let file = text.rsplit_once(':').map(|(file, _)| file).filter(|file| file.ends_with(".py"));
    if let Some(file) = file.filter(|_| language == LANGUAGE_DEFAULT) {
        function.code = Arc::new(source_code(file)?);
    }
    Ok(Some(Arc::new(function)))
}

/// A function by its name alone.
///
/// # Errors
/// The text names no function.
pub(crate) fn named(language: &str, text: &str) -> Result<Function, PlanError> {
    let whole = match language {
        LANGUAGE_DEFAULT => text
            .rsplit_once(':')
            .is_some_and(|(module, function)| !module.is_empty() && !function.is_empty()),
        _ => !text.is_empty(),
    };
    if !whole {
        return Err(PlanError::Call { text: text.to_owned() });
    }
    let name = text.as_bytes().to_vec();
    Ok(Function { language: language.to_owned(), name, ..Function::default() })
}

/// A file's name and contents, in the form that the Python worker takes.
fn source_code(file: &str) -> Result<Vec<u8>, PlanError> {
    let mut code = format!("s{file}\0").into_bytes();
    let head = code.len() as u64;
    source::open(Path::new(file))?
        .take(SOURCE_BYTES_MAX + 1)
        .read_to_end(&mut code)
        .map_err(|source| PlanError::Read { path: file.to_owned(), source })?;
    if code.len() as u64 - head > SOURCE_BYTES_MAX {
        let (path, bytes_max) = (file.to_owned(), SOURCE_BYTES_MAX);
        return Err(PlanError::LargeSource { path, bytes_max });
    }
    Ok(code)
}

/// Arguments of any kind as a payload.
pub(crate) fn json_payload(args: &[Value], kwargs: &serde_json::Map<String, Value>) -> Vec<u8> {
    if args.is_empty() && kwargs.is_empty() {
        return Vec::new();
    }
    let arguments = serde_json::json!({ "args": args, "kwargs": kwargs });
    format!("j{arguments}").into_bytes()
}
