//! Small mistakes, made one at a time in a script.

/// One line of a script that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mutant {
    /// Which line, from zero.
    pub(super) at: usize,
    /// The line as it is, without the space around it. If there are others like it, with the function that
    /// it is in.
    pub(super) line: String,
    /// The line as it becomes.
    pub(super) becomes: String,
}

/// What stands for a line that is left out.
pub(super) const DROPPED: &str = "(left out)";

/// What each sign and word is replaced by.
const SWAPS: [(&str, &str); 19] = [
    ("<", "<="),
    ("<=", "<"),
    (">", ">="),
    (">=", ">"),
    ("==", "~="),
    ("~=", "=="),
    ("+", "-"),
    ("-", "+"),
    ("*", "/"),
    ("/", "*"),
    ("and", "or"),
    ("or", "and"),
    ("not", ""),
    ("true", "false"),
    ("false", "true"),
    ("math.max", "math.min"),
    ("math.min", "math.max"),
    ("math.ceil", "math.floor"),
    ("math.floor", "math.ceil"),
];

/// Signs of two characters, which are not two signs.
const LONG_SIGNS: [&str; 5] = ["<=", ">=", "==", "~=", ".."];

/// Every mutant of a script.
pub(super) fn mutants(script: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = script.lines().collect();
    let mut all = Vec::new();
    for (at, text) in lines.iter().enumerate() {
        let tokens = tokens(text);
        let line = named(&lines, at);
        let mut add = |becomes: String| {
            let mutant = Mutant { at, line: line.clone(), becomes };
            if !all.contains(&mutant) {
                all.push(mutant);
            }
        };
        for (index, token) in tokens.iter().enumerate() {
            for instead in token.replacements(index.checked_sub(1).map(|before| &tokens[before])) {
                let (before, after) = (&text[..token.at], &text[token.at + token.text.len()..]);
                add(format!("{before}{instead}{after}").trim().to_owned());
            }
        }
        let next = lines.get(at + 1).map(|next| self::tokens(next)).unwrap_or_default();
        if is_statement(&tokens, &next) {
            add(DROPPED.to_owned());
        }
    }
    all
}

/// A line as it is known: by its text, and by the function that it is in if others read the same.
fn named(lines: &[&str], at: usize) -> String {
    let text = lines[at].trim();
    let alike = lines.iter().filter(|line| line.trim() == text).count();
    let function = lines[..=at].iter().rev().find_map(|line| line.strip_prefix("local function "));
    match function.and_then(|rest| rest.split_once('(')) {
        Some((name, _)) if alike > 1 => format!("{text} -- in {name}"),
        _ => text.to_owned(),
    }
}

impl Mutant {
    /// The whole script with the mistake.
    pub(super) fn apply(&self, script: &str) -> String {
        let becomes = if self.becomes == DROPPED { "" } else { self.becomes.as_str() };
        let lines = script.lines().enumerate();
        let lines = lines.map(|(at, line)| if at == self.at { becomes } else { line });
        lines.map(|line| format!("{line}\n")).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    at: usize,
    text: &'a str,
}

impl Token<'_> {
    fn replacements(&self, before: Option<&Token<'_>>) -> Vec<String> {
        if let Ok(number) = self.text.parse::<i64>() {
            return vec![(number + 1).to_string(), (number - 1).to_string()];
        }
        // One that negates what follows: a number behind it is changed by itself.
        if self.text == "-" && !before.is_some_and(Token::is_operand) {
            return Vec::new();
        }
        let swaps = SWAPS.iter().filter(|(is, _)| *is == self.text);
        swaps.map(|(_, instead)| (*instead).to_owned()).collect()
    }

    fn is_operand(&self) -> bool {
        let is_word = self.text.starts_with(|c: char| c.is_alphanumeric() || "_'\"])".contains(c));
        is_word && !["return", "and", "or", "not", "then", "else", "do"].contains(&self.text)
    }

    /// Whether what it stands in goes on after it, or has begun before it.
    fn joins(&self) -> bool {
        let signs = [
            ",", "=", "(", "{", "[", "..", "+", "-", "*", "/", "and", "or", "not", "==", "~=", "<",
            "<=", ">", ">=",
        ];
        signs.contains(&self.text)
    }
}

/// Words, numbers, texts and signs, up to a comment.
fn tokens(line: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let rest = &line[at..];
        if rest.starts_with("--") {
            break;
        }
        let first = rest.chars().next().unwrap_or_default();
        let length = if first == '\'' || first == '"' {
            rest[1..].find(first).map_or(rest.len(), |end| end + 2)
        } else if first.is_alphanumeric() || first == '_' {
            let part = |c: char| c.is_alphanumeric() || c == '_';
            let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
            // `math.max` is one word, and `a..b` is two.
            match rest[end..].strip_prefix('.').filter(|member| member.starts_with(part)) {
                Some(member) if !first.is_numeric() => {
                    end + 1 + member.find(|c| !part(c)).unwrap_or(member.len())
                }
                _ => end,
            }
        } else if LONG_SIGNS.iter().any(|sign| rest.starts_with(sign)) {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(Token { at, text: &rest[..length] });
        }
        at += length;
    }
    tokens
}

/// Whether a line is one whole statement that can be left out. What names something is none: without it the
/// script would fail in any case.
fn is_statement(tokens: &[Token<'_>], next: &[Token<'_>]) -> bool {
    let [first, .., last] = tokens else { return false };
    let keywords =
        ["local", "function", "if", "elseif", "else", "end", "for", "while", "repeat", "until"];
    let count = |open: &str, close: &str| {
        let of = |sign: &str| tokens.iter().filter(|token| token.text == sign).count();
        of(open) == of(close)
    };
    let begins = first.text.starts_with(|c: char| c.is_alphabetic());
    begins
        && !keywords.contains(&first.text)
        && !first.joins()
        && !last.joins()
        && !["then", "do"].contains(&last.text)
        && !next.first().is_some_and(|next| next.joins() && next.text != "not")
        && count("(", ")")
        && count("{", "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        mutants(line).into_iter().map(|mutant| mutant.becomes).collect()
    }

    #[test]
    fn comparisons_sums_and_words_are_exchanged() {
        assert_eq!(
            of("if a <= b and not c then"),
            ["if a < b and not c then", "if a <= b or not c then", "if a <= b and  c then",]
        );
        assert_eq!(of("local a = b - c"), ["local a = b + c"]);
        assert_eq!(of("local a = math.max(b, c)"), ["local a = math.min(b, c)"]);
    }

    #[test]
    fn constants_become_one_more_and_one_less() {
        assert_eq!(of("local a = -1"), ["local a = -2", "local a = -0"]);
        assert_eq!(of("local a1 = b(0)"), ["local a1 = b(1)", "local a1 = b(-1)"]);
    }

    #[test]
    fn texts_and_comments_stay_as_they_are() {
        assert_eq!(of("local a = 'b < 1 and c' .. d"), Vec::<String>::new());
        assert_eq!(of("-- a < b"), Vec::<String>::new());
        assert_eq!(of("local a = b -- 1 < 2"), Vec::<String>::new());
    }

    #[test]
    fn whole_statements_are_left_out_and_parts_of_them_are_not() {
        assert_eq!(of("return a"), [DROPPED]);
        assert_eq!(of("write(lock)"), [DROPPED]);
        assert_eq!(of("owner, expiry = '', a"), [DROPPED]);
        for part in ["local a = b", "a = b ..", "if a then", "'PX', b)", "end", "call(a,", "{a,"] {
            assert_eq!(of(part), Vec::<String>::new(), "{part}");
        }
        assert_eq!(of("a = b\n  .. c"), Vec::<String>::new());
    }

    #[test]
    fn lines_that_read_alike_are_told_apart_by_their_functions() {
        let script = "local function a()\n  return 1\nend\nlocal function b()\n  return 1\nend\n";
        let lines: Vec<_> = mutants(script).into_iter().map(|mutant| mutant.line).collect();
        assert_eq!(lines.first().map(String::as_str), Some("return 1 -- in a"));
        assert_eq!(lines.last().map(String::as_str), Some("return 1 -- in b"));
    }

    #[test]
    fn one_line_changes_and_no_other() {
        let script = "local a\nlocal b = a + c\nreturn b\n";
        let all: Vec<_> = mutants(script).iter().map(|mutant| mutant.apply(script)).collect();
        assert_eq!(all, ["local a\nlocal b = a - c\nreturn b\n", "local a\nlocal b = a + c\n\n",]);
    }
}
