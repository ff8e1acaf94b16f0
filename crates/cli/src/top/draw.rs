//! How `falkon top` looks: within 80 columns and 24 lines, or more if there are.

use super::board::{Board, List, cpus, takes_nothing};
use crate::progress::span;
use crate::query::tree::{Branch, indent};
use crate::query::{counted, printable};
use crate::results::staged::percent;
use crate::users::{Totals, cpus_text, totals};
use falkon_wire::message::{ExecutorStatus, InstanceStatus};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState, Wrap};

/// Lines of a list at least, with its title and its head.
const LIST_LINES_MIN: u16 = 5;
/// Lines that say why tasks wait, with their title.
const REASON_LINES: u16 = 7;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let reasons = if board.explained.is_some() { REASON_LINES } else { 0 };
    let summary = summary(board);
    let [head, instances, executors, why, foot] = Layout::vertical([
        Constraint::Length(if summary.len() > 2 { 3 } else { 2 }),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(reasons),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(Text::from(summary)), head);
    draw_instances(frame, board, instances);
    match board.list {
        List::Relays => draw_relays(frame, board, executors),
        List::Users => draw_users(frame, board, executors),
        _ => draw_executors(frame, board, executors),
    }
    if let Some((instance, reasons)) = &board.explained {
        let text = if reasons.is_empty() { "no task waits" } else { reasons.trim_end() };
        let title = format!(" why tasks of instance {instance} wait ");
        let block = Block::default().borders(Borders::TOP).title(title);
        let text = Paragraph::new(text.to_owned()).wrap(Wrap { trim: false });
        frame.render_widget(text.block(block), why);
    }
    frame.render_widget(Paragraph::new(footer(board)), foot);
}

/// The dispatcher and all that it has, in two lines or three; or that it does not answer.
fn summary(board: &Board) -> Vec<Line<'static>> {
    let status = &board.status;
    let up = span(status.now.since(status.started) as f64 / 1e6);
    let (used, all) = board.cpus_milli();
    let idle = status.executors.iter().filter(|one| takes_nothing(one)).count();
    let idle = if idle > 0 { format!(" ({idle} take no tasks)") } else { String::new() };
    let first = format!(
        "falkon {}, up {up}   executors {}{idle}   CPUs {} of {} in use",
        printable(&status.version),
        status.executors.len(),
        cpus(used),
        cpus(all),
    );
    let sum = |of: fn(&InstanceStatus) -> u64| status.instances.iter().map(of).sum::<u64>();
    let second = format!(
        "{:.1} tasks/s   running {}   queued {}   failed {}",
        board.rate(None),
        sum(|one| one.running),
        sum(queued),
        sum(|one| one.counts.failed),
    );
    let mut third = Vec::new();
    let usage = board.usage();
    let inputs = usage.all().objects;
    if inputs > 0 {
        let part = |objects| percent(objects, inputs);
        third.push(format!(
            "inputs {}: {} from own caches, {} from peers, {} from stores",
            inputs,
            part(usage.local.objects),
            part(usage.peer.objects),
            part(usage.store.objects)
        ));
    }
    let coming: u64 = status.coming.iter().map(|queue| queue.nodes).sum();
    if coming > 0 {
        third.push(format!("{} to come", counted(coming, "node")));
    }
    let first = match &board.lost {
        Some(reason) => {
            let text = format!("no answer, trying again: {}", printable(reason));
            Line::from(text).style(Style::new().fg(Color::Red).bold())
        }
        None => Line::from(first),
    };
    let mut lines = vec![first, Line::from(second)];
    if !third.is_empty() {
        lines.push(Line::from(third.join("   ")));
    }
    lines
}

fn queued(instance: &InstanceStatus) -> u64 {
    let counts = &instance.counts;
    counts.waiting + counts.ready + counts.dispatched.saturating_sub(instance.running)
}

fn state(instance: &InstanceStatus) -> &'static str {
    match instance {
        InstanceStatus { complete: true, .. } => "complete",
        InstanceStatus { paused: true, .. } => "paused",
        InstanceStatus { clogged: true, .. } => "held up",
        InstanceStatus { sealed: true, .. } => "running",
        _ => "open",
    }
}

/// A rate in few digits.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => String::new(),
        slow if slow < 100.0 => format!("{slow:.1}"),
        fast => format!("{fast:.0}"),
    }
}

fn draw_instances(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let columns = [
        right("ID"),
        left("NAME"),
        left("STATE"),
        right("TASKS"),
        right("QUEUED"),
        right("RUNNING"),
        right("DONE"),
        right("FAILED"),
        right("/S"),
    ];
    let row = |instance: &InstanceStatus| {
        let counts = &instance.counts;
        let failed = counts.failed + counts.cancelled;
        let cells = [
            instance.id.to_string(),
            printable(&instance.name),
            match instance.priority {
                0 => state(instance).to_owned(),
                priority => format!("{} {priority:+}", state(instance)),
            },
            counts.total.to_string(),
            queued(instance).to_string(),
            instance.running.to_string(),
            counts.done.to_string(),
            failed.to_string(),
            rate(board.rate(Some(instance.id))),
        ];
        let style = match instance {
            _ if failed > 0 => Style::new().fg(Color::Red),
            _ if instance.complete => Style::new().dim(),
            _ => Style::new(),
        };
        (cells, style)
    };
    let list = (board, List::Instances, board.instance_at());
    draw_list(frame, columns, (&board.status.instances, row), list, area);
}

/// What people should know of an executor.
fn remark(executor: &ExecutorStatus) -> String {
    match executor {
        ExecutorStatus { connected: false, .. } => "disconnected".to_owned(),
        ExecutorStatus { drained: true, .. } => "drained".to_owned(),
        ExecutorStatus { suspended_until: Some(_), .. } => "suspended".to_owned(),
        ExecutorStatus { unwritten, .. } if !unwritten.is_empty() => "unwritten".to_owned(),
        ExecutorStatus { nodes: Some(nodes), .. } => counted(*nodes, "node"),
        _ => String::new(),
    }
}

fn draw_executors(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let columns = [
        right("ID"),
        left("NAME"),
        left(""),
        right("CPUS"),
        right("RUNNING"),
        right("AHEAD"),
        right("CACHE"),
        right("HITS"),
    ];
    let row = |executor: &ExecutorStatus| {
        let (free, all) = (executor.free.cpus_milli.into(), executor.capacity.cpus_milli.into());
        let used = u64::saturating_sub(all, free);
        let cache = executor.cache.filter(|cache| cache.state.capacity > 0);
        let full = cache.map(|cache| percent(cache.state.used, cache.state.capacity));
        let inputs = cache.map(|cache| cache.state.usage).filter(|usage| usage.all().objects > 0);
        let hits = inputs.map(|usage| percent(usage.local.objects, usage.all().objects));
        let cells = [
            executor.id.to_string(),
            printable(&executor.name),
            remark(executor),
            format!("{} of {}", cpus(used), cpus(all)),
            executor.tasks.saturating_sub(executor.prefetched).to_string(),
            executor.prefetched.to_string(),
            full.unwrap_or_default(),
            hits.unwrap_or_default(),
        ];
        let is_well = !takes_nothing(executor) && executor.unwritten.is_empty();
        (cells, if is_well { Style::new() } else { Style::new().fg(Color::Yellow) })
    };
    let list = (board, List::Executors, board.executor_at());
    draw_list(frame, columns, (&board.status.executors, row), list, area);
}

/// The tree of relays, in the place of the executors.
fn draw_relays(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let columns = [
        left("STATE"),
        left("RELAY"),
        right("NODES"),
        right("CPUS"),
        right("RUNNING"),
        right("AHEAD"),
        right("/S"),
    ];
    let row = |Branch { path, standing }: &Branch| {
        let state = match standing.away_micros {
            None => "connected".to_owned(),
            Some(micros) => format!("away {}", span(micros as f64 / 1e6)),
        };
        let cells = [
            state,
            format!("{}{}", indent(standing), printable(&standing.name)),
            standing.nodes.to_string(),
            format!("{} of {}", cpus(standing.used_milli), cpus(standing.cpus_milli)),
            standing.running.to_string(),
            standing.ahead.to_string(),
            rate(board.rate_below(path)),
        ];
        let is_away = standing.away_micros.is_some();
        (cells, if is_away { Style::new().fg(Color::Yellow) } else { Style::new() })
    };
    let list = (board, List::Relays, board.relay_at());
    draw_list(frame, columns, (&board.relays, row), list, area);
}

/// The users, in the place of the executors.
fn draw_users(frame: &mut Frame<'_>, board: &Board, area: Rect) {
    let columns = [
        right("SHARE"),
        left("USER"),
        right("INSTANCES"),
        right("QUEUED"),
        right("RUNNING"),
        right("DONE"),
        right("FAILED"),
        right("CPUS"),
    ];
    let all = totals(&board.status);
    let row = |one: &Totals<'_>| {
        let cells = [
            one.user.map_or(1, |user| user.limits.share).to_string(),
            printable(one.name),
            one.instances.to_string(),
            one.queued.to_string(),
            one.running.to_string(),
            one.done.to_string(),
            one.failed.to_string(),
            one.user.map(cpus_text).unwrap_or_default(),
        ];
        let is_revoked = one.user.is_some_and(|user| user.is_revoked);
        (cells, if is_revoked { Style::new().dim() } else { Style::new() })
    };
    let list = (board, List::Users, board.user_at());
    draw_list(frame, columns, (&all, row), list, area);
}

/// The head of a column, and on which side its cells are.
type Column = (&'static str, Alignment);

fn left(head: &'static str) -> Column {
    (head, Alignment::Left)
}

fn right(head: &'static str) -> Column {
    (head, Alignment::Right)
}

/// A list with what is selected in it, if keys are about it. Numbers are shown whole: the
/// second column, the name, has what the others leave.
fn draw_list<T, const N: usize>(
    frame: &mut Frame<'_>,
    columns: [Column; N],
    (all, row): (&[T], impl Fn(&T) -> ([String; N], Style)),
    (board, list, at): (&Board, List, Option<usize>),
    area: Rect,
) {
    if area.height < LIST_LINES_MIN.min(frame.area().height / 4) {
        return;
    }
    // Only rows that are seen are made: there may be very many.
    let high = usize::from(area.height.saturating_sub(2));
    let at = at.unwrap_or(0);
    let first = at.saturating_sub(high / 2).min(all.len().saturating_sub(high));
    let rows: Vec<_> = all.iter().skip(first).take(high).map(row).collect();
    let widths = std::array::from_fn::<Constraint, N, _>(|column| {
        let heads = columns[column].0.len();
        let cells = rows.iter().map(|(cells, _)| cells[column].chars().count());
        let wide = u16::try_from(cells.fold(heads, usize::max)).unwrap_or(u16::MAX);
        if column == 1 { Constraint::Fill(1) } else { Constraint::Length(wide) }
    });
    let cell = |(text, (_, side)): (String, Column)| Text::from(text).alignment(side);
    let heads = columns.map(|column| cell((column.0.to_owned(), column)));
    let rows = rows
        .into_iter()
        .map(|(cells, style)| Row::new(cells.into_iter().zip(columns).map(cell)).style(style));
    let is_current = board.list == list;
    let style = if is_current { Style::new().bold() } else { Style::new() };
    let what = name(list);
    let title = format!(" {what}: {} ", all.len());
    let block = Block::default().borders(Borders::TOP).title(title).title_style(style);
    let highlight = if is_current { Modifier::REVERSED } else { Modifier::UNDERLINED };
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(Style::new().bold()))
        .block(block)
        .row_highlight_style(Style::new().add_modifier(highlight));
    let selected = (!all.is_empty()).then_some(at - first);
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
}

fn name(list: List) -> &'static str {
    match list {
        List::Instances => "instances",
        List::Executors => "executors",
        List::Relays => "relays",
        List::Users => "users",
    }
}

/// What keys do now, or a question, or what came of the last.
fn footer(board: &Board) -> Line<'static> {
    if let Some(instance) = board.asked {
        let question = format!("cancel all tasks of instance {instance}? y: yes, others: no");
        return Line::from(question).style(Style::new().fg(Color::Red).bold());
    }
    if !board.said.is_empty() {
        return Line::from(printable(&board.said)).style(Style::new().bold());
    }
    let own = match board.list {
        List::Instances => "  p pause  c cancel  +- priority  w why",
        List::Executors => "  d drain",
        List::Relays | List::Users => "",
    };
    let keys = format!("q quit  tab {}  ↑↓ select{own}", name(board.next_list()));
    Line::from(keys).style(Style::new().dim())
}

#[cfg(test)]
mod tests;
