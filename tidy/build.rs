//! Tells the checks which machine they are for: cargo says it to build scripts
//! only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(target) = std::env::var("TARGET") {
        println!("cargo::rustc-env=TIDY_TARGET={target}");
    }
}
