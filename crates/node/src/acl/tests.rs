use super::*;
use crate::resp::parse::Parser;
use crate::resp::table;

fn users() -> Users {
    Users::new(vec![(0, "main".to_owned()), (1, "social".to_owned()), (7, "feed".to_owned())])
}

fn with(rules: &str) -> Users {
    let mut users = users();
    set(&mut users, rules).unwrap();
    users
}

fn set(users: &mut Users, rules: &str) -> Result<(), String> {
    let rules: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    users.set(b"ann", &rules)
}

/// Whether ann may run a line in keyspace 0.
fn may(users: &Users, line: &str) -> Result<(), Denied> {
    let mut parser = Parser::default();
    let input = format!("{line}\r\n");
    assert_eq!(parser.parse(input.as_bytes(), 1_000), Ok(true));
    let args = parser.args(input.as_bytes());
    let entry = table::find(&args[0]).and_then(|entry| entry.resolve(args)).expect("a command");
    users.get(b"ann").unwrap().rights().check(entry, args, Some(0))
}

fn text(users: &Users) -> String {
    let user = users.get(b"ann").unwrap();
    String::from_utf8(user.rights().line(user.name(), users.keyspaces())).unwrap()
}

#[test]
fn rules_add_up_in_their_order_and_are_told_again() {
    for (rules, told) in [
        ("on nopass", "user ann on nopass resetchannels -@all"),
        ("on ~a* %R~b &c +get", "user ann on ~a* %R~b resetchannels &c -@all +get"),
        ("+@all ~* &*", "user ann off ~* &* +@all"),
        ("+@all -set -@dangerous +keys", "user ann off resetchannels +@all -set -@dangerous +keys"),
        ("+@all -@all +get", "user ann off resetchannels -@all +get"),
        ("+get -get +GET", "user ann off resetchannels -@all +get"),
        ("+config|get +config|set +config", "user ann off resetchannels -@all +config"),
        ("+config -config|set", "user ann off resetchannels -@all +config -config|set"),
        ("%R~a %W~a", "user ann off ~a resetchannels -@all"),
        ("db=feed,0", "user ann off resetchannels -@all db=main,feed"),
        ("db=1 db=7", "user ann off resetchannels -@all db=social,feed"),
        ("db=1 alldbs", "user ann off resetchannels -@all"),
        ("resetdbs", "user ann off resetchannels -@all resetdbs"),
        ("use=7 level=ryw", "user ann off resetchannels -@all use=feed level=ryw,cc"),
        ("level=ec,wfr", "user ann off resetchannels -@all level=ec,wfr"),
        ("on +get ~a db=1 use=1 reset", "user ann off sanitize-payload resetchannels -@all"),
    ] {
        let users = with(rules);
        assert_eq!(text(&users), told, "{rules}");
        // What is told makes the same user again.
        let again: Vec<&str> = told.split(' ').skip(2).collect();
        assert_eq!(text(&with(&again.join(" "))), told);
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_changes() {
    let mut users = with("on >secret ~a +get");
    let before = text(&users);
    for (rules, why) in [
        ("off +nosuch", "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL"),
        ("off +@nosuch", "Unknown command or category name"),
        ("off +config|nosuch", "Unknown command or category name"),
        ("off +get|", "Syntax error"),
        ("off +get|x", "first-arg of a command is not served"),
        ("off +client|list|x", "first-arg of a subcommand is not supported"),
        ("off nosuch", "Syntax error"),
        ("off nosuch=1", "Syntax error"),
        ("off %X~a", "Syntax error"),
        ("off allkeys ~b", "Try 'resetkeys'"),
        ("off allchannels &b", "Try 'resetchannels'"),
        ("off <wrong", "modifier '<': The password you are trying to remove"),
        ("off #12", "must be exactly 64 characters"),
        ("off (+get)", "Selectors are not served"),
        ("off use=nowhere", "no keyspace is called 'nowhere': there are main, social, feed"),
        ("off db=", "no keyspace is called ''"),
        ("off level=mw,ryw", "a level is"),
    ] {
        let told = set(&mut users, rules).unwrap_err();
        assert!(told.contains(why), "{rules}: {told}");
        assert!(!told.contains("wrong"), "no password is repeated: {told}");
        assert_eq!(text(&users), before, "{rules}");
    }
    assert!(users.set(b"a b", &[]).unwrap_err().contains("Usernames can't contain spaces"));
}

#[test]
fn passwords_are_kept_as_hashes_and_compared() {
    let mut users = with("on >one >two");
    assert!(!text(&users).contains("one") && text(&users).matches('#').count() == 2);
    let is = |users: &mut Users, password: &[u8]| users.authenticate(b"ann", password).is_some();
    assert!(is(&mut users, b"one") && is(&mut users, b"two") && !is(&mut users, b"three"));
    assert!(users.authenticate(b"bob", b"one").is_none());
    assert_eq!(users.denials.auth, 2);
    set(&mut users, "<one").unwrap();
    assert!(!is(&mut users, b"one") && is(&mut users, b"two"));
    // SHA-256 of "two".
    set(&mut users, "!3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3").unwrap();
    assert!(!is(&mut users, b"two"));
    set(&mut users, "nopass").unwrap();
    assert!(is(&mut users, b"anything"));
    set(&mut users, "off").unwrap();
    assert!(!is(&mut users, b"anything"));
}

#[test]
fn commands_are_allowed_one_by_one_and_by_category() {
    let users = with("allkeys +@read -mget +config|get +set");
    for allowed in ["GET a", "HGETALL a", "SET a b", "CONFIG GET a", "KEYS *", "AUTH x", "QUIT"] {
        assert_eq!(may(&users, allowed), Ok(()), "{allowed}");
    }
    for refused in ["MGET a", "DEL a", "CONFIG SET a b", "PING", "ACL LIST", "MERIDIAN.STATUS"] {
        assert_eq!(may(&users, refused), Err(Denied::Command), "{refused}");
    }
    let users = with("allkeys +@all -@admin");
    assert_eq!(may(&users, "CLIENT ID"), Ok(()));
    assert_eq!(may(&users, "CLIENT LIST"), Err(Denied::Command));
    assert_eq!(may(&users, "ACL WHOAMI"), Ok(()));
    assert_eq!(may(&users, "ACL SETUSER x"), Err(Denied::Command));
}

#[test]
fn each_key_matches_a_pattern_that_allows_what_is_done_to_it() {
    let users = with("+@all ~own:* %R~read:* %W~write:*");
    for allowed in [
        "SET own:1 x GET",
        "MGET own:1 read:1",
        "STRLEN write:1",
        "SET write:1 x",
        "LMOVE own:1 write:1 LEFT LEFT",
        "SETNX write:1 x",
        "LPUSH write:1 x",
        "PING",
        "BLPOP own:1 own:2 0",
    ] {
        assert_eq!(may(&users, allowed), Ok(()), "{allowed}");
    }
    for refused in [
        "GET write:1",
        "MGET own:1 write:1",
        "SET read:1 x",
        "SET write:1 x GET",
        "SET write:1 x IFEQ y",
        "INCR write:1",
        "LMOVE read:1 own:1 LEFT LEFT",
        "LPOP write:1",
        "GETEX read:1",
        "EXISTS other",
        "MSET own:1 x other y",
        "BLPOP own:1 other 0",
    ] {
        assert_eq!(may(&users, refused), Err(Denied::Key), "{refused}");
    }
}

#[test]
fn keyspaces_are_a_users_own() {
    let users = with("+@all allkeys db=feed");
    assert_eq!(may(&users, "GET a"), Err(Denied::Keyspace));
    let user = users.get(b"ann").unwrap();
    assert!(!user.is_unrestricted() && user.rights().may_use(2) && !user.rights().may_use(1));
    let users = with("+@all allkeys");
    assert!(users.get(b"ann").unwrap().is_unrestricted());
}

#[test]
fn only_who_may_do_everything_is_not_looked_at() {
    for (rules, unrestricted) in [
        ("+@all ~*", true),
        ("+@all ~* -get", false),
        ("+@all ~* -get +get", false),
        ("+@all ~a", false),
        ("+@all ~* resetdbs", false),
        ("+@read ~*", false),
    ] {
        assert_eq!(with(rules).get(b"ann").unwrap().is_unrestricted(), unrestricted, "{rules}");
    }
    assert!(!users().nobody.is_unrestricted());
}

#[test]
fn a_change_reaches_whoever_holds_the_user_and_so_does_its_end() {
    let mut users = with("on nopass +@all ~*");
    let held = users.authenticate(b"ann", b"").unwrap();
    set(&mut users, "-@all +get").unwrap();
    assert!(!held.is_unrestricted() && may(&users, "SET a b").is_err());
    set(&mut users, "+@all").unwrap();
    assert!(held.is_unrestricted());
    assert!(users.delete(b"ann") && !users.delete(b"ann"));
    assert!(held.is_gone() && !held.is_unrestricted() && users.take_departed() && !users.take_departed());
}

#[test]
fn a_configuration_begins_with_nothing() {
    let mut users = users();
    let rules = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (default, ann) = (rules("on >secret ~a +get"), rules("on >pw +@read allkeys use=feed"));
    users.configure([("default", &default[..]), ("ann", &ann[..])]).unwrap();
    assert!(users.is_nobody(&users.newcomer()));
    assert!(users.authenticate(b"default", b"secret").is_some_and(|user| !user.is_unrestricted()));
    assert_eq!(users.get(b"ann").unwrap().rights().start(), Some(2));
    let bad = rules("on +nosuch");
    let (place, why) = users.configure([("ann", &ann[..]), ("bob", &bad[..])]).unwrap_err();
    assert!(place == 1 && why.contains("'+nosuch'"), "{why}");
}

#[test]
fn a_rate_is_held_over_time_and_a_seconds_worth_may_come_at_once() {
    let users = with("on nopass +@all ~* rate=100");
    assert!(text(&users).ends_with(" rate=100"));
    let user = users.get(b"ann").unwrap();
    assert!(!user.is_unrestricted());
    let second = 1_000_000;
    let sent = |at: Micros| (0..1_000).take_while(|_| user.exceeds_rate(at).is_none()).count();
    assert_eq!(sent(5 * second), 100);
    assert_eq!((sent(5 * second), user.exceeds_rate(5 * second)), (0, Some(100)));
    assert_eq!(sent(5 * second + second / 2), 50);
    assert_eq!(sent(100 * second), 100, "what was not used is not saved");
    let users = with("on nopass +@all ~* rate=100 rate=0");
    assert!(users.get(b"ann").unwrap().is_unrestricted());
    assert!(set(&mut super::Users::default(), "rate=many").is_err());
}

/// Whatever a rule says: it is taken up or refused, and one that is refused changes nothing.
#[test]
fn mutated_rules_never_panic() {
    let rules = [
        "+@read",
        "-config|get",
        "%RW~a*",
        "#0123456789abcdef",
        "db=main,7",
        "level=ryw,mw",
        "rate=10",
        "&c",
        "use=7",
        "<x",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut users = with("on >secret ~a +get");
        let mut rule = rules[random(rules.len())].as_bytes().to_vec();
        for _ in 0..random(3) {
            match random(3) {
                0 => rule.truncate(random(rule.len() + 1)),
                1 => rule.insert(random(rule.len() + 1), random(256) as u8),
                _ => rule.reverse(),
            }
        }
        let before = text(&users);
        if users.set(b"ann", &[b"off", &rule]).is_ok() {
            taken += 1;
        } else {
            refused += 1;
            assert_eq!(text(&users), before);
        }
    }
    assert!(taken > 1_000 && refused > 1_000, "{taken} {refused}");
}
