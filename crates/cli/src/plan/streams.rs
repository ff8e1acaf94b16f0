//! `--collect-streams`: the archive of which the output streams of tasks become members.

use super::error::ObjectError;
use super::files;
use falkon_core::archive::split_member;
use falkon_wire::command::{Command, CommandTemplate, Piece, Text};

/// Where the streams of a command-line's tasks go: to members of their numbers.
pub(crate) fn text(archive: &[u8]) -> Text {
    vec![Piece::Literal([archive, b"!"].concat()), Piece::Number]
}

/// Where the streams of one task go.
pub(crate) fn of_task(archive: &[u8], number: u64) -> Vec<u8> {
    [archive, b"!", number.to_string().as_bytes()].concat()
}

/// An archive, seen from `current_dir`.
///
/// # Errors
/// It is no path of an archive.
fn absolute(archive: &[u8], current_dir: &[u8]) -> Result<Vec<u8>, ObjectError> {
    let wrong = || ObjectError::StreamsPlace(String::from_utf8_lossy(archive).into_owned());
    let path = files::normalized(current_dir, archive);
    let member = String::from_utf8([&path, &b"!1"[..]].concat()).map_err(|_| wrong())?;
    let is_archive = split_member(&member).is_some_and(|(_, name)| name == "1");
    let is_path = !archive.windows(3).any(|part| part == b"://");
    if is_archive && is_path { Ok(path) } else { Err(wrong()) }
}

/// Makes the archive of a template absolute.
///
/// # Errors
/// It is no path of an archive.
pub(crate) fn make_template_absolute(
    template: &mut CommandTemplate,
    current_dir: &[u8],
) -> Result<(), ObjectError> {
    if let Some(Piece::Literal(bytes)) = template.streams.iter_mut().flatten().next()
        && let Some(archive) = bytes.strip_suffix(b"!")
    {
        *bytes = [&absolute(archive, current_dir)?, &b"!"[..]].concat();
    }
    Ok(())
}

/// Makes the archive of a task absolute.
///
/// # Errors
/// It is no path of an archive.
pub(crate) fn make_absolute(command: &mut Command, current_dir: &[u8]) -> Result<(), ObjectError> {
    if let Some(streams) = &mut command.streams
        && let Some(at) = streams.iter().rposition(|byte| *byte == b'!')
    {
        let (archive, name) = streams.split_at(at);
        *streams = [&absolute(archive, current_dir)?, name].concat();
    }
    Ok(())
}
