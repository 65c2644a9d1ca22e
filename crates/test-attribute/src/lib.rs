//! The attribute `#[quorlock_testkit::test]`, for tests that need programs which a machine may lack.

use proc_macro::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// Makes a test of a function, which is skipped where a program is missing that it needs.
///
/// An `async fn` becomes a `#[tokio::test]` with the arguments of this attribute, any other function a `#[test]`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let mut head: Vec<_> = function.into_iter().collect();
    let body = head.pop();
    let at = head.iter().position(|token| is_word(token, "fn"));
    let name = at.and_then(|at| head.get(at + 1));
    let (Some(at), Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (at, name, body)
    else {
        return tokens("compile_error!(\"`#[test]` is for functions\");");
    };
    let is_async = head[..at].iter().any(|token| is_word(token, "async"));
    let (attribute, body) = if is_async {
        (format!("#[::tokio::test({arguments})]"), run("async_test", name, "async move", body))
    } else {
        ("#[::core::prelude::v1::test]".to_owned(), run("test", name, "||", body))
    };
    let mut test = tokens(&attribute);
    test.extend(head);
    test.extend([in_braces(body)]);
    test
}

/// A call of a function in `quorlock_testkit::skipping` with the name of a test and its body.
fn run(function: &str, name: &Ident, before: &str, body: Group) -> TokenStream {
    let mut arguments = tokens(&format!("concat!(module_path!(), \"::{name}\"), {before}"));
    arguments.extend([TokenTree::Group(body)]);
    let mut call = tokens(&format!("::quorlock_testkit::skipping::{function}"));
    call.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, arguments))]);
    if function == "async_test" {
        call.extend(tokens(".await"));
    }
    call
}

fn in_braces(tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(Delimiter::Brace, tokens))
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

/// The tokens of a piece of Rust that is written here.
fn tokens(rust: &str) -> TokenStream {
    rust.parse().expect("it is Rust")
}
