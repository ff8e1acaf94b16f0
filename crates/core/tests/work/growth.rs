//! Counts the instructions of a part of a scenario at two sizes of something
//! that the part is not about, and holds their ratio against a bound.

use crate::guard::{SCENARIO, TASKS, collected, need_valgrind};

/// Something that must not cost more where there is more of something else.
pub(crate) struct Growth {
    pub(crate) name: &'static str,
    /// How much there is of it: little, and much.
    pub(crate) sizes: (u64, u64),
    /// How many times as much it may cost with much of it.
    pub(crate) times: f64,
    /// Does the counted part within [`counted`].
    pub(crate) run: fn(u64),
}

/// Nothing costs more than it may where there is more of something else.
/// `child` is the name of the test that calls [`run_growth`].
pub(crate) fn hold_growths(growths: &[Growth], child: &str) {
    need_valgrind();
    let only = ["--collect-atstart=no", "--toggle-collect=falkon_counted_part"];
    let mut above = Vec::new();
    for growth in growths {
        let cost = |size| collected(growth.name, size, child, &only) as f64;
        let (little, much) = (cost(growth.sizes.0), cost(growth.sizes.1));
        let (found, most) = (much / little, growth.times);
        let line = format!(
            "{}: {little} instructions at {}, {found:.2} times as many at {}, at most {most}",
            growth.name, growth.sizes.0, growth.sizes.1
        );
        println!("{line}");
        if found > most {
            above.push(line);
        }
    }
    assert!(above.is_empty(), "work that grows with what it is not about:\n{}", above.join("\n"));
}

/// What is done within is counted by [`hold_growths`], and nothing else.
pub(crate) fn counted(mut part: impl FnMut()) {
    // The system's allocator sorts what was freed before when it is next asked for
    // a larger block: here, rather than at the cost of the part.
    drop(std::hint::black_box(vec![0_u8; 64 << 10]));
    falkon_counted_part(&mut part);
}

// SAFETY: No other symbol of this program has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn falkon_counted_part(part: &mut dyn FnMut()) {
    part();
}

/// Runs what grows that the environment names, if it names one.
pub(crate) fn run_growth(growths: &[Growth]) {
    let (Ok(name), Ok(size)) = (std::env::var(SCENARIO), std::env::var(TASKS)) else {
        return;
    };
    let growth = growths.iter().find(|growth| growth.name == name).unwrap();
    (growth.run)(size.parse().unwrap());
}
