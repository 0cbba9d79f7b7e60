//! The JSON form of specifications, which queues on disk and other programs rely on.

use swath_jobs::{
    Address, CertificateFiles, ChecksumsFrom, Disk, GetFrom, GetSpec, GetTo, Header, JobSpec,
    Network, OldVersion, Plan, Relay, RouteChoice, Routes, SecretRef, ServerNames, SwarmSpec, Work,
};

/// Everything that a specification can say. A change here breaks what others have written down:
/// fields are added with a default, never renamed.
const WHOLE: &str = r#"{
  "work": {
    "get": {
      "from": {
        "replicas": [
          "https://one.example/data.bin?sig=1"
        ]
      },
      "to": {
        "folder": "/scratch"
      },
      "digests": [
        "crc32c:00000001"
      ],
      "checksums": {
        "address": "https://one.example/SHA256SUMS"
      },
      "require_digest": true,
      "overwrite": true,
      "resume": false,
      "sparse": true,
      "discover": false,
      "files_at_once": 4,
      "server_names": "always",
      "reserved": [
        "report.html"
      ],
      "swarm": {
        "is_off": false,
        "trackers": [
          "udp://t.example:6969"
        ],
        "peers": [
          "peer.example:6881"
        ],
        "listen": "0.0.0.0:6881",
        "listens_for_utp": true,
        "upload_bytes_per_s": 1000000,
        "keeps_seeding": true,
        "ratio": 1.5
      },
      "cluster_token": {
        "file": "cluster-token"
      },
      "old_version": {
        "torrent": "run7-1.torrent",
        "place": "run7"
      },
      "select": [
        "*.h5"
      ]
    }
  },
  "network": {
    "headers": [
      {
        "name": "X-Key",
        "value": {
          "name": "key"
        }
      }
    ],
    "token": {
      "file": "/home/me/token"
    },
    "ca_files": [
      "ca.pem"
    ],
    "fingerprints": [],
    "insecure": false,
    "certificate": {
      "certificate": "me.pem",
      "key": null
    },
    "timeout_ms": 1500,
    "limit_bytes_per_s": 1000000
  },
  "routes": {
    "relays": [
      {
        "url": "https://r1.example:8471",
        "token": {
          "name": "r1"
        },
        "fingerprint": null
      }
    ],
    "choice": {
      "over": [
        0
      ]
    },
    "end_to_end": true
  },
  "disk": {
    "io": "threads",
    "memory_bytes": 50000000
  },
  "plan": {
    "policy": "mdtp",
    "connections": 4,
    "connections_in_all": null,
    "max_sources": 8,
    "initial_chunk_bytes": 1,
    "large_chunk_bytes": 2,
    "chunk_bytes": 3
  },
  "deadline_s": 7200
}"#;

fn whole() -> JobSpec {
    let address = |text: &str| Address::new(text);
    let from = GetFrom::Replicas(vec![address("https://one.example/data.bin?sig=1")]);
    JobSpec {
        work: Work::Get(GetSpec {
            swarm: SwarmSpec {
                is_off: false,
                trackers: vec!["udp://t.example:6969".to_owned()],
                peers: vec!["peer.example:6881".to_owned()],
                listen: Some("0.0.0.0:6881".parse().unwrap()),
                listens_for_utp: true,
                upload_bytes_per_s: Some(1_000_000),
                keeps_seeding: true,
                ratio: Some(1.5),
            },
            cluster_token: Some(SecretRef::File("cluster-token".into())),
            old_version: Some(OldVersion {
                torrent: "run7-1.torrent".into(),
                place: "run7".into(),
            }),
            digests: vec!["crc32c:00000001".parse().unwrap()],
            checksums: Some(ChecksumsFrom::Address(address("https://one.example/SHA256SUMS"))),
            require_digest: true,
            overwrite: true,
            resume: false,
            sparse: true,
            discover: false,
            files_at_once: Some(4),
            reserved: vec!["report.html".into()],
            server_names: ServerNames::Always,
            select: vec!["*.h5".to_owned()],
            ..GetSpec::new(from, GetTo::Folder("/scratch".into()))
        }),
        network: Network {
            headers: vec![Header {
                name: "X-Key".to_owned(),
                value: SecretRef::Name("key".to_owned()),
            }],
            token: Some(SecretRef::File("/home/me/token".into())),
            ca_files: vec!["ca.pem".into()],
            certificate: Some(CertificateFiles { certificate: "me.pem".into(), key: None }),
            timeout_ms: 1500,
            limit_bytes_per_s: Some(1_000_000),
            ..Network::default()
        },
        routes: Routes {
            relays: vec![Relay {
                url: address("https://r1.example:8471"),
                token: Some(SecretRef::Name("r1".to_owned())),
                fingerprint: None,
            }],
            choice: RouteChoice::Over(vec![0]),
            end_to_end: true,
        },
        disk: Disk { io: "threads".parse().unwrap(), memory_bytes: 50_000_000 },
        plan: Plan {
            policy: "mdtp".parse().unwrap(),
            connections: Some(4),
            max_sources: 8,
            initial_chunk_bytes: 1,
            large_chunk_bytes: 2,
            chunk_bytes: 3,
            ..Plan::default()
        },
        deadline_s: Some(7200),
    }
}

#[test]
fn the_json_form_is_stable() {
    assert_eq!(serde_json::to_string_pretty(&whole()).unwrap(), WHOLE);
    assert_eq!(serde_json::from_str::<JobSpec>(WHOLE).unwrap(), whole());
}

#[test]
fn what_is_not_said_is_as_usual() {
    let text = r#"{"work":{"get":{"from":{"replicas":["https://h/f"]},"to":{"folder":"d"}}}}"#;
    let read: JobSpec = serde_json::from_str(text).unwrap();
    assert_eq!(read, JobSpec::get(["https://h/f"], "d"));
}

#[test]
fn a_wish_that_nobody_knows_is_refused() {
    for (known, unknown) in [
        ("\"work\": {", "\"wrok\": 1, \"work\": {"),
        ("\"sparse\": true", "\"sparce\": true"),
        ("\"insecure\": false", "\"insecure\": false, \"prxy\": \"x\""),
        ("\"end_to_end\"", "\"end_to_ends\""),
        ("\"chunk_bytes\": 3", "\"chunk_bytes\": 3, \"chunks\": 3"),
        ("\"folder\"", "\"bucket\""),
    ] {
        let text = WHOLE.replacen(known, unknown, 1);
        assert_ne!(text, WHOLE, "{known}");
        let read = serde_json::from_str::<JobSpec>(&text);
        assert!(read.is_err(), "{unknown} is passed over");
    }
}
