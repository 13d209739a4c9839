//! Text forms of applications.

use proptest::prelude::*;

use crate::generator::generator;

use super::*;

#[test]
fn applications_print_in_full() {
    let store = "keys=10000,pick=uniform,key=fixed:30,value=fixed:200,get=0.9";
    let unread = "keys=10000,pick=uniform,key=fixed:30,value=fixed:200";
    let cases = [
        ("echo:64", "echo:64".to_owned()),
        ("echo:1KiB", "echo:1024".to_owned()),
        ("synthetic:exp:50us", "synthetic:exp:50us".to_owned()),
        ("stss:reply=fixed:1kB,time=exp:10us,request=uni:64", "stss:time=exp:10us,request=uni:64,reply=fixed:1000".to_owned()),
        ("memcached-binary", format!("memcached-binary:{store}")),
        ("memcached-ascii:", format!("memcached-ascii:{store}")),
        (
            "memcached-binary:keys=1M,pick=zipf:0.99,key=fixed:30,value=fixed:200,get=0.9",
            "memcached-binary:keys=1000000,pick=zipf:0.99,key=fixed:30,value=fixed:200,get=0.9".to_owned(),
        ),
        (
            "memcached-ascii:etc,pick=rr,get=0.5",
            "memcached-ascii:keys=10000,pick=rr,key=gev:30.7984:8.20449:0.078688,value=pareto:0:214.476:0.348238,get=0.5"
                .to_owned(),
        ),
        ("redis", format!("redis:resp=2,{store}")),
        ("redis:scan,resp=3", format!("redis:scan,resp=3,{unread}")),
        ("redis:command=HSET {key} f {value}", format!("redis:command=HSET {{key}} f {{value}},resp=2,{unread}")),
        (
            "redis:command=\"EVAL 'a,b' 0\",preload=SET {key} 1",
            format!("redis:command=\"EVAL 'a,b' 0\",preload=SET {{key}} 1,resp=2,{unread}"),
        ),
        ("http", "http:GET:/".to_owned()),
        ("http:path=\"/a?b=c,d\"", "http:method=GET,path=\"/a?b=c,d\"".to_owned()),
        ("http:/a,host=x", "http:method=GET,path=/a,host=x".to_owned()),
        ("http:POST:/a,body=x", "http:method=POST,path=/a,body=x".to_owned()),
        ("http:/a,data=@x", "http:method=GET,path=/a,data=@x".to_owned()),
        (
            "http:requests=\"9 /a\\n\\n# b\\nPOST:/b,body=\\\"c,d\\\"\"",
            "http:requests=\"9 GET:/a\\n1 method=POST,path=/b,body=\\\"c,d\\\"\"".to_owned(),
        ),
        ("http:HEAD:/x:y", "http:HEAD:/x:y".to_owned()),
        ("http2", "http2:GET:/".to_owned()),
        ("http2:/a,header=A: b", "http2:method=GET,path=/a,header=A: b".to_owned()),
        ("grpc:/a.B/C", "grpc:a.B/C".to_owned()),
        ("grpc:a.B/C,base64=CgJoaQ==,header=A: b", "grpc:a.B/C,hex=0a026869,header=A: b".to_owned()),
        ("grpc:a.B/C,count=3", "grpc:a.B/C,count=3".to_owned()),
        ("grpc:a.B/C,count=1", "grpc:a.B/C".to_owned()),
        ("grpc:a.B/C,turns=3,hex=0a", "grpc:a.B/C,hex=0a,turns=3".to_owned()),
        ("grpc:a.B/C,message=hi", "grpc:a.B/C,hex=6869".to_owned()),
        (
            "http:method=POST,path=/x,host=a:80,header=A: b,header=\"B: c,d\",body=\"{\\\"a\\\": 1}\"",
            "http:method=POST,path=/x,host=a:80,header=A: b,header=\"B: c,d\",body=\"{\\\"a\\\": 1}\"".to_owned(),
        ),
    ];
    for (text, printed) in cases {
        assert_eq!(app(text).to_string(), printed);
        assert_eq!(app(&printed), app(text), "{printed}");
    }
}

#[test]
fn what_is_no_application_is_refused_with_its_reason() {
    let cases = [
        ("", "echo:BYTES"),
        ("gopher", "is no application"),
        ("echo", "not a number"),
        ("echo:9MiB", "0 to 8388608 bytes"),
        ("synthetic:exp:50", "no unit"),
        ("stss:time=exp:1us,request=fixed:1", "needs reply="),
        ("stss:time=exp:1us,request=fixed:1,reply=fixed:1,x=1", "has no option \"x\""),
        ("memcached-binary:keys", "write keys=VALUE"),
        ("memcached-binary:keys=0", "above zero"),
        ("memcached-binary:keys=2000G", "at most 2^40"),
        ("memcached-binary:keys=1,keys=2", "given twice"),
        ("memcached-binary:pick=zipf", "uniform, rr or zipf:S"),
        ("memcached-binary:pick=zipf:1000:0.99", "keys=N counts the keys"),
        ("memcached-binary:pick=zipf:101", "from 0 to 100"),
        ("memcached-binary:get=1.5", "from 0 to 1"),
        ("memcached-binary:key=gauss:1", "is no distribution"),
        ("memcached-binary:value=file:/x", "no loader"),
        ("memcached-binary:scan", "has no option \"scan\""),
        ("redis:resp=4", "2 or 3"),
        ("redis:@/etc/passwd", "where the command is given"),
        ("redis:command=PING,commands=PING", "do not go together"),
        ("redis:commands=\"0 PING\"", "from 1 to 1,000,000"),
        ("redis:commands=\"# nothing\"", "one command a line"),
        ("redis:scan,command=PING", "do not go together"),
        ("redis:command=PING,get=1", "do not go together"),
        ("redis:preload=SET a b", "has no option \"preload\""),
        ("redis:command=GET {x}", "the places are"),
        ("http:path=x", "begins with a slash"),
        ("http:/post,foo=1", "has no option \"foo\"; it has method=METHOD, path=PATH, host=NAME"),
        ("http:/post,opt", "has no option \"opt\""),
        ("http:/a?b=c,d", "has no option \"d\""),
        ("http:/post,path=/x", "do not go together"),
        ("http:/,body=@/etc/passwd", "where the command is given"),
        ("http:@/etc/passwd", "where the command is given"),
        ("http:/,body=a,data=b", "do not go together"),
        ("http:requests=\"0 /a\"", "from 1 to 1,000,000"),
        ("http:requests=\"# nothing\"", "no request in the list"),
        ("http:requests=\"/a,x\"", "has no option \"x\""),
        ("http:header=Host: x", "not for the headers"),
        ("http:header=x", "is a line such as"),
        ("http:path=/a b", "has no spaces"),
        ("http:header=\"A: b\\r\\nC: d\"", "is a line such as"),
        ("http:method=\"GET /", "ends with them"),
        ("http2:/,header=Connection: close", "not spoken in HTTP/2"),
        ("http2:@/etc/passwd", "where the command is given"),
        ("grpc", "which method"),
        ("grpc:a.B", "which method"),
        ("grpc:a.B/C/D", "which method"),
        ("grpc:a.B/C,hex=0", "two digits"),
        ("grpc:a.B/C,base64=?", "letters, digits"),
        ("grpc:a.B/C,hex=00,message=a", "do not go together"),
        ("grpc:a.B/C,message=@/etc/passwd", "where the command is given"),
        ("grpc:a.B/C,header=te: x", "not for the headers"),
        ("grpc:a.B/C,count=0", "above zero"),
        ("grpc:a.B/C,turns=0", "above zero"),
        ("grpc:a.B/C,turns=2,count=2", "count and turns"),
        ("grpc:a.B/C,turns=2,turns=3", "turns"),
        ("grpc:a.B/C,message=hi,count=4M", "16 MiB at most together"),
        ("grpc:a.B/C,x=1", "has no option \"x\""),
    ];
    for (text, reason) in cases {
        let error = App::parse(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

/// Options of the tables are those that parsers take: a parser that takes more panics in a debug
/// build.
#[test]
fn every_option_of_the_tables_is_taken() {
    let mut options = 0;
    for entry in CODECS.iter().copied().flatten() {
        assert!(!entry.about.is_empty(), "{}", entry.name);
        for option in entry.options.iter().copied().flatten() {
            options += 1;
            let name = option.example.split(':').next().unwrap_or_default();
            let takes = App::parse(option.example);
            assert!(takes.is_ok(), "{}: {takes:?}", option.example);
            assert!(CODECS.iter().copied().flatten().any(|entry| entry.name == name));
            assert!(option.form.starts_with(option.name) && !option.about.is_empty(), "{option:?}");
            // Of a store the example may be another application's.
            assert!(option.example.contains(option.name), "{option:?}");
            let unknown = App::parse(&format!("{},nonsense=1", option.example)).unwrap_err();
            assert!(unknown.to_string().contains(option.form), "{unknown}");
        }
    }
    assert!(options > 20, "{options}");
}

#[test]
fn files_are_read_where_the_command_is_given() {
    let mut read = |path: &str| match path {
        "body" => Ok(b"{\"a\": 1,\n\"b\": 2}".to_vec()),
        "list" => Ok(b"# weights\n9 /a\n1 method=POST,path=/b,body=@body\n/c,host=x\n".to_vec()),
        "message" => Ok(vec![10, 2, 0xff]),
        "commands" => Ok(b"# a mix\n3 GET {key}\n\nSET {key} {value}\n".to_vec()),
        _ => Err("no such file".to_owned()),
    };
    let mut printed = |text: &str| {
        App::with_files(text, &mut read)
            .and_then(|text| App::parse(&text))
            .map(|app| app.to_string())
    };
    for (text, expected) in [
        ("http:/a", "http:GET:/a"),
        ("redis:keys=1", "redis:resp=2,keys=1,pick=uniform,key=fixed:30,value=fixed:200,get=0.9"),
        (
            "http:POST:/a,body=@body",
            "http:method=POST,path=/a,body=\"{\\\"a\\\": 1,\\n\\\"b\\\": 2}\"",
        ),
        (
            "http2:@list",
            "http2:requests=\"9 GET:/a\\n1 method=POST,path=/b,body=\\\"{\\\\\\\"a\\\\\\\": 1,\\\\n\\\\\\\"b\\\\\\\": 2}\\\"\\n1 method=GET,path=/c,host=x\"",
        ),
        (
            "redis:@commands,keys=5",
            "redis:commands=\"3 GET {key}\\n1 SET {key} {value}\",resp=2,keys=5,pick=uniform,key=fixed:30,value=fixed:200",
        ),
        ("grpc:a.B/C,host=x,message=@message", "grpc:a.B/C,hex=0a02ff,host=x"),
    ] {
        assert_eq!(printed(text).unwrap(), expected);
    }
    let list = printed("http:@list").unwrap();
    assert!(list.starts_with("http:requests=\"9 GET:/a\\n1 method=POST,path=/b,body="), "{list}");
    assert!(list.ends_with("\\n1 method=GET,path=/c,host=x\""), "{list}");
    assert_eq!(printed("http:@nowhere").unwrap_err().to_string(), "nowhere: no such file");
    assert!(printed("http:/,body=@message").unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn requests_come_by_their_weights() {
    let app = app("http:requests=\"3 /a\\n1 HEAD:/b\"");
    let setting = Setting { carrier: Carrier::Stream, authority: "x", is_tls: false };
    let mut requests = Requests::new(&app, setting, generator(1, 0)).unwrap();
    let mut first = 0;
    for _ in 0..10_000 {
        let mut bytes = Vec::new();
        requests.write(&mut bytes);
        first += u32::from(bytes.starts_with(b"GET /a "));
    }
    // Five standard deviations of a share of 3 in 4 are 217.
    assert!((7_283..=7_717).contains(&first), "{first}");
}

#[test]
fn commands_come_by_their_weights() {
    let app = app("redis:commands=\"3 GET {key}\\n1 PING\"");
    let setting = Setting { carrier: Carrier::Stream, authority: "x", is_tls: false };
    let mut requests = Requests::new(&app, setting, generator(1, 0)).unwrap();
    let mut gets = 0;
    for _ in 0..10_000 {
        let mut bytes = Vec::new();
        requests.write(&mut bytes);
        gets += u32::from(bytes.starts_with(b"*2\r\n$3\r\nGET\r\n"));
    }
    // As above.
    assert!((7_283..=7_717).contains(&gets), "{gets}");
}

#[test]
fn a_loader_gives_samples_in_the_unit_that_is_drawn() {
    let mut asked = Vec::new();
    let text = "stss:time=file:/t,request=file:/r,reply=fixed:1";
    let parsed = App::parse_with(text, &mut |path, unit| {
        asked.push((path.to_owned(), unit));
        Ok(vec![1.0])
    });
    assert_eq!(parsed.unwrap().to_string(), text);
    use crate::quantity::Unit;
    assert_eq!(asked, [("/t".to_owned(), Unit::Time), ("/r".to_owned(), Unit::Size)]);
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_prints_as_equal(
        name in prop_oneof![Just("redis:"), Just("http:"), Just("memcached-ascii:"), Just("stss:"), Just("")],
        rest in "([a-z]{3,7}=)?[ -~]{0,20}(,[a-z]{3,6}=[ -~]{0,12})?",
    ) {
        if let Ok(app) = App::parse(&format!("{name}{rest}")) {
            prop_assert_eq!(App::parse(&app.to_string()), Ok(app));
        }
    }

    #[test]
    fn any_http_that_is_read_prints_as_equal(path in "/[!-~]{0,20}", header in "[ -~]{0,10}", body in ".{0,20}") {
        let [path, header, body] =
            [path, format!("X: {header}"), body].map(|value| quoted(&value));
        let app = app(&format!("http:path={path},header={header},data={body}"));
        prop_assert_eq!(App::parse(&app.to_string()), Ok(app));
    }
}
