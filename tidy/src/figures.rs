//! Measured figures of pages: each is printed by a command of
//! `bench/figures.toml`, which names its pages.

use crate::Finding;
use crate::tree::File;

/// The commands, and where their tables' templates are.
const REGISTRY: &str = "bench/figures.toml";
pub(crate) const TABLES: &str = "bench/figures-tables.md";
/// The page that says what each command measures, and has no figures.
const COMMANDS: &str = "bench/README.md";
/// History is no page: what it says was so at the time.
const HISTORY: &str = "CHANGELOG.md";
/// Numbers of rounds, as words.
const NUMBERS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/// A command of the registry.
#[derive(Debug, Clone)]
struct Command {
    name: String,
    /// The words by which pages name it.
    key: String,
    pages: Vec<String>,
}

/// Checks all files together.
#[must_use]
pub fn check(files: &[File]) -> Vec<Finding> {
    let Some(registry) = files.iter().find(|file| file.path == REGISTRY) else {
        return vec![Finding::new(REGISTRY, 0, "is not there: it names the commands of figures")];
    };
    let commands = match commands(&registry.text) {
        Ok(commands) => commands,
        Err(error) => return vec![Finding::new(REGISTRY, 0, error)],
    };
    let mut findings: Vec<Finding> =
        commands.iter().flat_map(|command| of_command(command, files)).collect();
    for page in files.iter().filter(|file| is_page(&file.path)) {
        findings.extend(of_page(page, &commands));
    }
    if let Some(tables) = files.iter().find(|file| file.path == TABLES) {
        findings.extend(of_tables(tables, &commands, files));
    }
    findings
}

fn is_page(path: &str) -> bool {
    path.ends_with(".md") && ![TABLES, COMMANDS, HISTORY].contains(&path)
}

fn commands(registry: &str) -> Result<Vec<Command>, String> {
    let table: toml::Table = registry.parse().map_err(|error| format!("is no TOML: {error}"))?;
    let all = table.get("command").and_then(toml::Value::as_array);
    let all = all.ok_or("has no [[command]]")?;
    let command = |one: &toml::Value| {
        let text = |field: &str| one.get(field)?.as_str().map(str::to_owned);
        let pages = one.get("pages")?.as_array()?;
        let pages: Option<Vec<String>> =
            pages.iter().map(|page| page.as_str().map(str::to_owned)).collect();
        Some(Command { name: text("name")?, key: key(&text("command")?), pages: pages? })
    };
    all.iter().map(|one| command(one).ok_or_else(|| format!("lacks a field in `{one}`"))).collect()
}

/// What names a command whatever its options: a script's path, a benchmark of
/// cargo, or a subcommand.
fn key(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    if let Some(script) = words.iter().find(|word| word.ends_with(".py") || word.ends_with(".sh")) {
        return (*script).to_owned();
    }
    let from = words.iter().position(|word| !word.contains('=')).unwrap_or(0);
    let words = &words[from..];
    let count = match words {
        ["falkon-lab", "bench", ..] => 3,
        ["falkon-lab", "papers", ..] => 2,
        _ => words.len(),
    };
    words[..count.min(words.len())].join(" ")
}

fn of_command(command: &Command, files: &[File]) -> Vec<Finding> {
    let Command { name, key, pages } = command;
    let finding = |what: String| Finding::new(REGISTRY, 0, what);
    let mut findings = Vec::new();
    if !exists(key, files) {
        findings.push(finding(format!("{name}: there is no `{key}`")));
    }
    let says = |path: &str| files.iter().any(|file| file.path == path && file.text.contains(key));
    for page in pages.iter().filter(|page| !says(page)) {
        findings.push(finding(format!("{name}: {page} does not name `{key}`")));
    }
    let of_project = key.starts_with("falkon-lab bench") || key.starts_with("bench/");
    if of_project && !says(COMMANDS) {
        findings.push(finding(format!("{name}: {COMMANDS} does not name `{key}`")));
    }
    findings
}

/// Whether there is what a command runs.
fn exists(key: &str, files: &[File]) -> bool {
    let has = |path: &str, text: &str| {
        files.iter().any(|file| file.path == path && file.text.contains(text))
    };
    match key.split(' ').collect::<Vec<_>>()[..] {
        ["falkon-lab", "bench", what] => has("crates/lab/src/bench.rs", &variant(what)),
        ["falkon-lab", "papers"] => has("crates/lab/src/papers.rs", "pub(crate) fn papers("),
        ["falkon", "sim", flag] => flag.strip_prefix("--figures=").is_some_and(|topic| {
            files.iter().any(|file| file.path == format!("crates/cli/src/sim/{topic}.rs"))
        }),
        ["make", target] => has("Makefile", &format!("\n{target}:")),
        ["cargo", "bench", "-p", package, "--bench", bench] => {
            let krate = package.trim_start_matches("falkon-");
            has(&format!("crates/{krate}/benches/{bench}.rs"), "")
        }
        ["cargo", "test", .., test] => {
            let path = format!("crates/cli/tests/end_to_end/{test}.rs");
            files.iter().any(|file| file.path == path)
        }
        [script] => has(script, ""),
        _ => false,
    }
}

/// How clap's enum says `what`.
fn variant(what: &str) -> String {
    let mut letters = what.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase()).into_iter();
    format!("    {}(", first.chain(letters).collect::<String>())
}

/// Each section of a page that has measured figures names a command that
/// prints them, and each command that it names knows of the page.
fn of_page(page: &File, commands: &[Command]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut at = 1;
    for section in sections(&page.text) {
        let named: Vec<&Command> =
            commands.iter().filter(|command| names(section, &command.key)).collect();
        let measured = section.lines().position(is_measured);
        if let (Some(line), true) = (measured, named.is_empty()) {
            let what = format!(
                "a figure was measured, and its section names no command of {REGISTRY}: name \
                 the one that prints it, or leave the figure out"
            );
            findings.push(Finding::new(&page.path, at + line, what));
        }
        if measured.is_some() {
            let lacks = |command: &&Command| !command.pages.contains(&page.path);
            let all_lack = |command: &&Command| {
                let same = commands.iter().filter(|other| other.key == command.key);
                same.clone().all(|one| lacks(&one))
            };
            for command in named.into_iter().filter(all_lack) {
                let what = format!("{REGISTRY}: `{}` does not have this page", command.name);
                findings.push(Finding::new(&page.path, at, what));
            }
        }
        at += section.lines().count();
    }
    findings
}

/// Whether a line says under which load, or in how many rounds, something was
/// measured.
fn is_measured(line: &str) -> bool {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_number = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            || NUMBERS.contains(&word.to_lowercase().as_str())
    };
    let follows = |at: usize| words.get(at).is_some_and(is_number);
    words.iter().enumerate().any(|(at, word)| match *word {
        "load" => follows(at + 1) || (words.get(at + 1) == Some(&"of") && follows(at + 2)),
        "rounds" => at > 0 && follows(at - 1),
        _ => false,
    })
}

/// Whether a text names a command, and not one whose name begins alike.
fn names(text: &str, key: &str) -> bool {
    text.match_indices(key).any(|(at, _)| {
        let next = text[at + key.len()..].chars().next();
        next.is_none_or(|next| !next.is_alphanumeric() && next != '-')
    })
}

/// The parts of a page, each with its heading.
fn sections(text: &str) -> Vec<&str> {
    let mut starts = vec![0];
    starts.extend(text.match_indices("\n## ").map(|(at, _)| at + 1));
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Checks that tables' templates have a page with a place for them, and name
/// commands that know of the page.
fn of_tables(tables: &File, commands: &[Command], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut page = "";
    for (at, line) in tables.text.lines().enumerate() {
        let mut wrong = |what| findings.push(Finding::new(TABLES, at + 1, what));
        if let Some(place) = line.strip_prefix("<!-- figures: ") {
            let (name, path) =
                place.trim_end_matches(" -->").split_once(" in ").unwrap_or_default();
            page = path;
            let marker = format!("<!-- figures: {name} -->");
            if !files.iter().any(|file| file.path == path && file.text.contains(&marker)) {
                wrong(format!("`{path}` has no `{marker}`"));
            }
        }
        for cell in line.split('{').skip(1).filter(|cell| cell.contains("::")) {
            let name = cell.split("::").next().unwrap_or_default();
            match commands.iter().find(|command| command.name == name) {
                None => wrong(format!("{REGISTRY} has no `{name}`")),
                Some(command) if !command.pages.iter().any(|one| one == page) => {
                    wrong(format!("{REGISTRY}: `{name}` does not have {page}"));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// A tree in which all is well.
    fn tree() -> Vec<File> {
        let registry = "[[command]]\nname = \"latency\"\ncommand = \"falkon-lab bench latency --x 1\"\n\
                        pages = [\"a.md\"]\n\
                        [[command]]\nname = \"py\"\ncommand = \"A=1 python3 bench/a.py --y\"\n\
                        pages = [\"a.md\"]\n";
        vec![
            file(REGISTRY, registry),
            file(TABLES, "<!-- figures: t in a.md -->\n| x | {latency::p50} |\n<!-- end -->\n"),
            file(COMMANDS, "`falkon-lab bench latency`, `bench/a.py`"),
            file("bench/a.py", ""),
            file("crates/lab/src/bench.rs", "enum What {\n    Latency(LatencyArgs),\n}"),
            file(
                "a.md",
                "# A\n## B\n`falkon-lab bench latency`: 5 us (load 2)\n<!-- figures: t -->\n\
                          ## C\nby `bench/a.py`, three rounds\n## D\nnothing\n",
            ),
        ]
    }

    /// What is found when a text of the tree is another.
    fn with(path: &str, from: &str, to: &str) -> Vec<String> {
        let mut files = tree();
        let file = files.iter_mut().find(|file| file.path == path).unwrap();
        assert!(file.text.contains(from));
        file.text = file.text.replace(from, to);
        check(&files).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_is_measured_has_a_command() {
        assert_eq!(check(&tree()), []);
        assert_eq!(with("a.md", "nothing", "5 us at a load of 3").len(), 1);
        assert_eq!(with("a.md", "`bench/a.py`", "hand").len(), 2);
        // A command whose name begins alike is another.
        assert_eq!(with("a.md", "bench latency`", "bench latency-2`").len(), 1);
    }

    #[test]
    fn commands_exist_and_know_their_pages() {
        assert_eq!(with("crates/lab/src/bench.rs", "Latency(", "Late(").len(), 1);
        assert_eq!(with(REGISTRY, "bench/a.py", "bench/b.py").len(), 4);
        assert_eq!(with(REGISTRY, "pages = [\"a.md\"]", "pages = []").len(), 3);
        assert_eq!(with(REGISTRY, "pages = [\"a.md\"]", "").len(), 1);
        assert_eq!(with(COMMANDS, "`bench/a.py`", "").len(), 1);
    }

    #[test]
    fn tables_have_a_place_and_a_command() {
        assert_eq!(with(TABLES, "latency::", "late::").len(), 1);
        assert_eq!(with("a.md", "<!-- figures: t -->", "").len(), 1);
    }
}
