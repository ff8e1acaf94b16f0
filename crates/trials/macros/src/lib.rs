//! The attribute of falkon-trials.

use proc_macro::{TokenStream, TokenTree};

/// Makes a function without arguments a test of a program that ends in
/// `falkon_trials::main()`. With `#[trial(ignore)]` it is run where `--ignored`
/// asks for it.
#[proc_macro_attribute]
pub fn trial(options: TokenStream, function: TokenStream) -> TokenStream {
    let ignored = match options.to_string().as_str() {
        "" => false,
        "ignore" => true,
        _ => return error("#[trial] takes nothing but `ignore`"),
    };
    let mut tokens = function.clone().into_iter();
    let is_fn =
        |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let (Some(_), Some(TokenTree::Ident(name))) = (tokens.find(is_fn), tokens.next()) else {
        return error("#[trial] is for functions");
    };
    let entry = format!(
        "::falkon_trials::inventory::submit! {{ ::falkon_trials::Trial {{
            module: ::core::module_path!(), name: \"{name}\", ignored: {ignored}, run: {name}
        }} }}"
    );
    let entry: TokenStream = entry.parse().expect("the entry is Rust");
    function.into_iter().chain(entry).collect()
}

fn error(text: &str) -> TokenStream {
    format!("::core::compile_error!({text:?});").parse().expect("the error is Rust")
}
