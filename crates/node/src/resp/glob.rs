//! Patterns of `KEYS`, `SCAN MATCH` and `CONFIG GET`.

/// Whether `text` matches `pattern`: `?` is any byte, `*` any bytes, `[a-c]` and `[^a-c]` one of a set, `\` takes
/// the next byte as it stands.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to go on when what follows the last star does not match: with one more byte for the star. Only the
    // last one needs it, so the time is bounded by the product of the lengths.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let (mut pattern, mut text) = (pattern, text);
    loop {
        if let [b'*', rest @ ..] = pattern {
            retry = Some((rest, text));
            pattern = rest;
            continue;
        }
        if pattern.is_empty() && text.is_empty() {
            return true;
        }
        if let [byte, rest @ ..] = text
            && let Some(after) = match_one(pattern, *byte)
        {
            (pattern, text) = (after, rest);
            continue;
        }
        match retry {
            Some((after, [_, shorter @ ..])) => {
                retry = Some((after, shorter));
                (pattern, text) = (after, shorter);
            }
            _ => return false,
        }
    }
}

/// What follows the pattern's first element, if that matches the byte.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', set @ ..] => match_set(set, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

fn match_set(set: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut set) = match set {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    let rest = loop {
        set = match set {
            [b'\\', literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => break rest,
            [first, b'-', last, rest @ ..] => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                found |= *literal == byte;
                rest
            }
            // A set that is not closed ends with the pattern.
            [] => break &[],
        }
    };
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("a*b*c", "aXbYbZc", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b", "hb", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[\\]]", "]", true),
            ("key:*:x", "key:12:x", true),
            ("\\", "\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_long_time() {
        assert!(!matches(&[&b"*a".repeat(200)[..], b"c"].concat(), &[b'a'; 5000]));
    }
}
