"""Custom resources of the shape that the charts and samples of slurm-operator and soperator produce."""

from typing import Any

import yaml

_YAML = """
Controller:
  apiVersion: slinky.slurm.net/v1beta1
  kind: Controller
  metadata: {name: prod, labels: {app.kubernetes.io/managed-by: Helm}}
  spec:
    accountingRef: {name: prod}
    slurmKeyRef: {name: prod-auth-slurm, key: slurm.key}
    jwtKeyRef: {name: prod-auth-jwt, key: jwt.key}
    jwksKeyRef: {name: prod-jwks, key: jwks.json}
    clusterName: prod_cluster
    extraConf: |-
      SchedulerParameters=defer,bf_continue
      PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED
    configFileRefs: [{name: prod-config-extra}]
    prologScriptRefs: [{name: prod-prolog-scripts}]
    epilogScriptRefs:
    prologSlurmctldScriptRefs:
    epilogSlurmctldScriptRefs:
    slurmctld: {args: [-vv], image: "registry.example/slurmctld:1", imagePullPolicy: IfNotPresent, resources: {}}
    inplaceReconfigure: true
    reconfigure: {image: "registry.example/slurmctld:26.05", imagePullPolicy: IfNotPresent, resources: {}}
    logfile: {image: "registry.example/alpine:3", imagePullPolicy: IfNotPresent, resources: {}}
    template:
      metadata: {labels: {team: hpc}, annotations: {note: x}}
      spec:
        affinity: {}
        imagePullSecrets: null
        initContainers: []
        nodeSelector: {kubernetes.io/os: linux}
        priorityClassName: ""
        resources: {}
        tolerations: []
    ha: {backups: 1, enabled: false}
    persistence:
      accessModes: [ReadWriteOnce]
      enabled: true
      existingClaim: ""
      resources: {requests: {storage: 4Gi}}
      selector: {matchLabels: {}}
      storageClassName: standard
    service: {metadata: {}, spec: {type: ClusterIP}, port: 6817}
    metrics:
      enabled: true
      serviceMonitor:
        enabled: true
        labels: {release: prometheus}
        interval: 30s
        scrapeTimeout: 25s
        endpoints: [{path: /metrics/jobs, interval: 1m, scrapeTimeout: 30s}]
external Controller:
  apiVersion: slinky.slurm.net/v1beta1
  kind: Controller
  metadata: {name: elsewhere}
  spec:
    slurmKeyRef: {name: a, key: slurm.key}
    jwtHs256KeyRef: {name: a, key: jwt_hs256.key}
    external: true
    externalConfig: {host: slurm.example.org, port: 6817}
NodeSet:
  apiVersion: slinky.slurm.net/v1beta1
  kind: NodeSet
  metadata: {name: prod-worker-slinky}
  spec:
    controllerRef: {name: prod}
    extraConf: Weight=10 Feature=gold
    partition: {enabled: true, config: State=UP MaxTime=UNLIMITED}
    ssh: {enabled: true, extraSshdConfig: "LogLevel VERBOSE", sssdConfRef: {key: sssd.conf, name: prod-sssd-conf}}
    scalingMode: StatefulSet
    replicas: 3
    slurmd:
      args: []
      env: [{name: A, value: b}]
      image: registry.example/slurmd:26.05
      imagePullPolicy: IfNotPresent
      resources: {limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 1}}
      volumeMounts: []
    logfile: {image: "registry.example/alpine:3", imagePullPolicy: IfNotPresent, resources: {}}
    template:
      metadata: {labels: {team: hpc}}
      spec:
        affinity: {}
        hostname: slinky-
        imagePullSecrets: null
        initContainers: []
        nodeSelector: {kubernetes.io/os: linux}
        priorityClassName: ""
        resources: {}
        tolerations: []
        volumes: []
    volumeClaimTemplates:
      - metadata: {name: scratch}
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
    updateStrategy:
      rollingUpdate: {maxUnavailable: 25%}
      scheduledUpdate: {startTime: "2030-01-01T00:00:00Z", duration: 2h0m0s, flags: [IGNORE_JOBS]}
      type: RollingUpdate
    persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}
    revisionHistoryLimit: 0
    minReadySeconds: 0
    ordinalPadding: 3
    pinToNode: false
    workloadDisruptionProtection: true
    pruneSlurmNodeRecords: NodeNotFound
    oversubscribeNode: false
LoginSet:
  apiVersion: slinky.slurm.net/v1beta1
  kind: LoginSet
  metadata: {name: prod-login-slinky}
  spec:
    controllerRef: {name: prod}
    extraSshdConfig: |
      LoginGraceTime 600
    sssdConfRef: {name: prod-sssd-conf, key: sssd.conf}
    rootSshAuthorizedKeys: |
      ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample admin
    replicas: 1
    strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%}}
    login: {env: [], image: "registry.example/login:26.05", resources: {}, securityContext: {privileged: false}}
    initconf: {image: "registry.example/sackd:26.05", resources: {}}
    template: {metadata: {}, spec: {nodeSelector: {kubernetes.io/os: linux}, volumes: []}}
    service: {metadata: {}, spec: {type: LoadBalancer}, port: 22}
Accounting:
  apiVersion: slinky.slurm.net/v1beta1
  kind: Accounting
  metadata: {name: prod}
  spec:
    slurmKeyRef: {name: prod-auth-slurm, key: slurm.key}
    jwtKeyRef: {name: prod-auth-jwt, key: jwt.key}
    extraConf: CommitDelay=1
    slurmdbd: {args: [], image: "registry.example/slurmdbd:26.05", imagePullPolicy: IfNotPresent, resources: {}}
    template: {metadata: {labels: {a: b}}, spec: {tolerations: []}}
    storageConfig:
      database: slurm_acct_db
      host: mariadb
      passwordKeyRef: {key: password, name: mariadb-password}
      port: 3306
      username: slurm
    service: {metadata: {}, spec: {}}
RestApi:
  apiVersion: slinky.slurm.net/v1beta1
  kind: RestApi
  metadata: {name: prod}
  spec:
    controllerRef: {name: prod}
    replicas: 2
    slurmrestd: {args: [], env: [], image: "registry.example/slurmrestd:26.05", resources: {}}
    template: {metadata: {}, spec: {}}
    service: {metadata: {}, spec: {type: NodePort}, nodePort: 30820}
Token:
  apiVersion: slinky.slurm.net/v1beta1
  kind: Token
  metadata: {name: prod-token}
  spec:
    jwtKeyRef: {name: prod-auth-jwt, key: jwt.key}
    username: slurm
    lifetime: 1h30m
    refresh: true
    secretRef: {name: prod-token, key: SLURM_JWT}
SlurmCluster:
  apiVersion: slurm.nebius.ai/v1
  kind: SlurmCluster
  metadata: {name: slurm1, labels: {app.kubernetes.io/managed-by: Helm}}
  spec:
    crVersion: 5.0.0
    maintenance: none
    useDefaultAppArmorProfile: false
    mpiConfig: {pmixEnv: OMPI_MCA_btl_tcp_if_include=eth0}
    slurmConfig:
      completeWait: 5
      defCpuPerGPU: 4
      defMemPerNode: 0
      epilog: /opt/slurm_scripts/epilog.sh
      prolog: /opt/slurm_scripts/prolog.sh
      taskProlog: /opt/slurm_scripts/task_prolog.sh
      taskPluginParam: ""
      maxJobCount: 20000
      messageTimeout: 60
      minJobAge: 1800
      topologyParam: SwitchAsNodeRank
      topologyPlugin: topology/tree
      suspendTime: 1000000000
      resumeTimeout: 1800
    topology: {blockSize: 18}
    customSlurmConfig: |
      DebugFlags=Script
    customCgroupConfig: |
      ConstrainDevices=yes
    cgroupVersion: v2
    healthCheckConfig:
      healthCheckInterval: 120
      healthCheckProgram: /opt/slurm_scripts/check.sh
      healthCheckNodeState: [{state: ANY}, {state: CYCLE}]
    partitionConfiguration:
      configType: structured
      partitions:
        - {name: main, isAll: true, config: "Default=YES PriorityTier=10 MaxTime=INFINITE OverSubscribe=YES"}
        - {name: gpus, nodeSetRefs: [worker-gpu], config: "Default=NO"}
    k8sNodeFilters:
      - name: gpu
        affinity:
          nodeAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [gpu]}]}]
        tolerations: [{effect: NoSchedule, key: nvidia.com/gpu, operator: Exists}]
      - {name: no-gpu, nodeSelector: {pool: cpu}}
    volumeSources:
      - {name: slurm-scripts, configMap: {name: scripts, defaultMode: 493}}
      - {name: jail, persistentVolumeClaim: {claimName: jail-pvc, readOnly: false}}
    secrets: {sshdKeysName: host-keys}
    populateJail:
      image: registry.example/populate:1
      imagePullPolicy: IfNotPresent
      imagePullSecrets: [{name: pull}]
      appArmorProfile: unconfined
      k8sNodeFilterName: gpu
      priorityClass: slurm1-populate
      jailSnapshotVolume: {volumeSourceName: jail}
      overwrite: false
      hostUsers: true
    plugStackConfig:
      customPlugins: [{required: false, path: chroot.so, arguments: {root: /mnt/jail}}]
      ncclDebug: {enabled: true, logLevel: INFO, outputDirectory: /logs, outputToFile: true, required: false}
      ncclInspectorPreConf: {enabled: false, dumpVerbose: false, dumpThreadIntervalMicroseconds: 1000000}
      pyxis: {importerPath: /opt/importer.sh, required: true, useSquashfuse: false}
    slurmNodes:
      accounting:
        enabled: true
        k8sNodeFilterName: no-gpu
        priorityClass: slurm1-accounting
        slurmConfig:
          accountingStorageTRES: CPU,Mem,Node,VMem,Gres/gpu
          jobAcctGatherFrequency: 0
          jobAcctGatherType: jobacct_gather/none
          priorityWeightAge: 0
          priorityWeightQOS: 0
        slurmdbdConfig:
          {archiveEvents: "yes", archiveTXN: "no", debugLevel: info, purgeTXNAfter: 12month, tcpTimeout: 2}
        slurmdbd:
          image: registry.example/slurmdbd:1
          appArmorProfile: unconfined
          port: 6819
          resources: {cpu: 1000m, memory: 3Gi, ephemeral-storage: 20Gi}
        munge: {image: "registry.example/munge:1", resources: {cpu: 100m, memory: 128Mi}}
        mariadbOperator:
          enabled: true
          protectedSecret: false
          image: registry.example/mariadb:11
          resources: {cpu: 1000m, memory: 2Gi}
          replicas: 1
          metrics: {enabled: true}
          podSecurityContext: {fsGroup: 999}
          securityContext: {runAsUser: 999}
          replication: {enabled: false}
          storage: {size: 30Gi, storageClassName: standard, resizeInUseVolumes: true}
          priorityClassName: slurm1-mariadb
      controller:
        k8sNodeFilterName: no-gpu
        priorityClass: slurm1-controller
        slurmctld:
          image: registry.example/slurmctld:1
          imagePullPolicy: IfNotPresent
          appArmorProfile: unconfined
          port: 6817
          resources: {cpu: 1000m, memory: 3Gi, ephemeral-storage: 20Gi}
          livenessProbe: {failureThreshold: 5, httpGet: {path: /livez, port: 6817}}
        munge: {image: "registry.example/munge:1", appArmorProfile: unconfined}
        sssdDebugLevel: 0
        customInitContainers: [{name: exporter, image: "registry.example/exporter:1", restartPolicy: Always}]
        serviceAccountName: slurm1-controller
        volumes:
          spool: {volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 50Gi}}}}
          jail: {volumeSourceName: jail}
        openMetrics: {enabled: true, serviceMonitor: {interval: 30s, scrapeTimeout: 28s, endpoints: [jobs, nodes]}}
      login:
        size: 2
        k8sNodeFilterName: no-gpu
        priorityClass: slurm1-login
        hostUsers: false
        sshd:
          image: registry.example/sshd:1
          port: 22
          resources: {cpu: 3000m, memory: 9Gi, ephemeral-storage: 30Gi}
          securityLimitsConfig: "* soft nofile 1024"
          procMount: Default
          customEnv: [{name: A, value: b}]
        munge: {image: "registry.example/munge:1"}
        sshRootPublicKeys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample admin"]
        sshdServiceType: LoadBalancer
        sshdServiceAnnotations: {a: b}
        sshdServiceLoadBalancerIP: 192.0.2.10
        sshdServiceLoadBalancerSourceRanges: [192.0.2.0/24]
        sshdConfigMapRefName: ""
        sssdConfSecretRefName: sssd
        sssdLdapCAConfigMapRefName: ldap-ca
        volumes:
          jail: {volumeSourceName: jail}
          jailSubMounts: [{name: data, mountPath: /data, subPath: "", readOnly: true, volumeSourceName: jail}]
          customMounts: [{name: slurm-scripts, mountPath: /opt/slurm_scripts/, volumeSourceName: slurm-scripts}]
        userIsolation: {enabled: false, cpuWeight: 100, memoryHigh: 4Gi, memoryMax: 5Gi}
      exporter:
        enabled: true
        size: 1
        k8sNodeFilterName: no-gpu
        collectionInterval: 30s
        maxCollectorInflight: 1
        jobSource: controller
        accountingJobsLookback: 1h
        podMonitorConfig: {interval: 30s, jobLabel: slurm-exporter, scrapeTimeout: 28s}
        exporterContainer: {image: "registry.example/exporter:1"}
        serviceAccountName: exporter
      rest:
        enabled: true
        size: 2
        k8sNodeFilterName: no-gpu
        threadCount: 3
        maxConnections: 10
        rest: {image: "registry.example/slurmrestd:1", resources: {cpu: 2000m, memory: 8Gi}}
    sConfigController:
      serviceAccountName: slurm1-sconfigcontroller
      node: {size: 1, k8sNodeFilterName: system}
      container: {image: "registry.example/sconfigcontroller:1", resources: {cpu: 250m}}
      runAsUid: 1001
      runAsGid: 1001
      reconfigurePollInterval: 20s
      reconfigureWaitTimeout: 5m
NodeSet of a SlurmCluster:
  apiVersion: slurm.nebius.ai/v1alpha1
  kind: NodeSet
  metadata: {name: worker-gpu}
  spec:
    clusterName: slurm1
    replicas: 3
    maxUnavailable: 500
    updateStrategy: slurmAwareRollingUpdate
    ephemeralNodes: false
    initialNumberEphemeralNodes: 1
    ephemeralTopologyWaitTimeout: 180
    gpu: {enabled: true, nvidia: {gdrCopyEnabled: true}}
    docker: {enabled: true}
    topology: {fabric: root}
    nodeConfig:
      features: [gpu, cuda]
      autoResume: true
      static: Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1
      dynamic: InstanceId={{ .PodName }}
      gresConfig: [AutoDetect=nvidia]
    slurmd:
      image: {repository: registry.example/slurmd, tag: "1", pullPolicy: IfNotPresent}
      customEnv: [{name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}]
      port: 6818
      resources: {cpu: 156000m, memory: 1220Gi, ephemeral-storage: 55Gi, nvidia.com/gpu: 8}
      volumes:
        spool: {emptyDir: {}}
        jail: {persistentVolumeClaim: {claimName: jail-pvc}}
        jailSubMounts: [{mountPath: /scratch, name: scratch, subPath: "1", volumeSource: {emptyDir: {}}}]
        customVolumeMounts:
          - {mountPath: /cache, name: cache, volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce]}}
        sharedMemorySize: 64Gi
        persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}
      security: {limitsConfig: "", appArmorProfile: unconfined, procMount: Default}
    munge:
      image: {repository: registry.example/munge, tag: "1"}
      resources: {cpu: 2000m, memory: 4Gi}
      security: {limitsConfig: "", appArmorProfile: unconfined}
    sssdDebugLevel: 0
    workerInitRandomDelaySeconds: 30
    priorityClass: high
    affinity: {nodeAffinity: {}}
    nodeSelector: {pool: gpu}
    tolerations: [{effect: NoExecute, key: example.org/away, operator: Exists, tolerationSeconds: 120}]
    workerAnnotations: {prometheus.io/port: "9090"}
    customInitContainers: [{name: hi, image: "registry.example/busybox:1", command: [echo, Hi!]}]
    imagePullSecrets: [{name: pull}]
    configMapRefSupervisord: ""
    configMapRefSshd: ""
"""

CLUSTERS_OF_OTHERS: dict[str, dict[str, Any]] = yaml.load(_YAML, yaml.CSafeLoader)
"""By what they show."""
