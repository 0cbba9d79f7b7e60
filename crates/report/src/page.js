(function(){"use strict";
// Tooltips and zoom. The page is complete without this; names are only ever set as text.
var D=JSON.parse(document.getElementById("data").textContent),tip=document.getElementById("tip");
var line=document.getElementById("timeline"),cross=document.getElementById("cross"),X=10000;
var view=[0,1],ENDS=["delivered","tail given to a faster lane","another copy came first","failed"];
function all(q,f){Array.prototype.forEach.call(document.querySelectorAll(q),f)}
function three(v){return v<9.995?v.toFixed(2):v<99.95?v.toFixed(1):v.toFixed(0)}
function bytes(n){if(n<999.5)return n.toFixed(0)+" B";var u=["kB","MB","GB","TB","PB","EB"],i=0;n/=1000;while(n>=999.5&&i<5){n/=1000;i++}return three(n)+" "+u[i]}
function secs(t){t/=1e4;return t<1?(t*1e3).toFixed(0)+" ms":t<60?t.toFixed(2)+" s":stamp(t)}
function stamp(t){var h=Math.floor(t/3600),m=Math.floor(t/60)%60,s=t%60;s=(s<10?"0":"")+(s%1?s.toFixed(1):s);return h?h+":"+(m<10?"0":"")+m+":"+s:m+":"+s}
function label(t){t=Math.round(t*1e6)/1e6;return t===0?"0":t<60?+t.toFixed(6)+" s":stamp(Math.round(t*10)/10)}
function src(s){return (s+1)+" "+(D.src[s]||"").split("/")[0]}

function show(ev,rows){
  tip.textContent="";
  rows.forEach(function(r,i){var d=document.createElement("div");
    if(Array.isArray(r)){d.className="r";r.forEach(function(c,j){var e=document.createElement("span");if(!j)e.className="q";e.textContent=c;d.appendChild(e)})}
    else{var e=document.createElement(i?"span":"b");e.textContent=r;d.appendChild(e)}tip.appendChild(d)});
  tip.hidden=false;
  var w=tip.offsetWidth,h=tip.offsetHeight,x=ev.clientX+16,y=ev.clientY+18;
  if(x+w>innerWidth-6)x=Math.max(6,ev.clientX-w-14);
  if(y+h>innerHeight-6)y=Math.max(6,ev.clientY-h-14);
  tip.style.left=x+"px";tip.style.top=y+"px";
}
function hide(){tip.hidden=true;if(cross&&!drag)cross.hidden=true}

// Bars by source and lane, for finding the one under the pointer.
var lanes={};
D.bars.forEach(function(b){var k=b[0]+"/"+b[1];(lanes[k]=lanes[k]||[]).push(b)});
function barAt(s,l,t,slack){
  var list=lanes[s+"/"+l]||[],best=null,near=slack;
  list.forEach(function(b){
    var f=b[3]<0?b[2]:b[3],d=t<f?f-t:t>b[4]?t-b[4]:0;
    if(d<near||d===0&&!best){near=d;best=b}
  });
  if(!best)list.forEach(function(b){if(t>=b[2]&&t<=b[4])best=b});
  return best;
}
function rateAt(t){var r=D.rates,lo=0,hi=r.length-1;while(lo<hi){var m=(lo+hi)>>1;if(r[m][0]<t)lo=m+1;else hi=m}
  if(lo&&t-r[lo-1][0]<r[lo][0]-t)lo--;return r[lo]}
function swathRows(b){
  var n=b[8],rows=[n>1?n+" swaths":"Swath of "+bytes(b[6])];
  rows.push(["source",src(b[0])],["lane",b[1]+1],["asked at",secs(b[2])]);
  if(b[3]>=0)rows.push(["first byte after",secs(b[3]-b[2])]);
  rows.push(["ended at",secs(b[4])]);
  if(n>1)rows.push(["bytes",bytes(b[6])]);else rows.push(["from byte",b[5].toLocaleString("en")]);
  if(b[3]>=0&&b[4]>b[3])rows.push(["rate",bytes(b[6]/((b[4]-b[3])/1e4))+"/s"]);
  rows.push(["end",ENDS[b[7]]]);return rows;
}
function rateRows(t){
  var s=rateAt(t);if(!s)return null;
  var sum=0,list=s[1].map(function(r,i){sum+=r;return[i,r]}).filter(function(e){return e[1]>0});
  list.sort(function(a,b){return b[1]-a[1]});
  var rows=[secs(s[0])+" · "+bytes(sum*1e3)+"/s"];
  list.slice(0,12).forEach(function(e){rows.push([src(e[0]),bytes(e[1]*1e3)+"/s"])});
  if(list.length>12)rows.push(["and "+(list.length-12)+" more",""]);
  return rows;
}
function mapRows(el,px,py,box){
  var lines=+el.dataset.lines,size=+el.dataset.size,per=Math.ceil(size/lines);
  var at=Math.floor(py/box.height*lines)*per+px/box.width*per,m=D.map,lo=0,hi=m.length;
  if(at>=size)return null;
  while(lo<hi){var k=(lo+hi)>>1;if(m[k][1]<=at)lo=k+1;else hi=k}
  var head="Byte "+Math.floor(at).toLocaleString("en");
  if(lo>=m.length||m[lo][0]>at)return[head,"not fetched in this run"];
  return[head,["source",src(m[lo][2])],["stretch",bytes(m[lo][1]-m[lo][0])],["complete at",secs(m[lo][3]*10)]];
}

var drag=null;
function plotOf(ev){return ev.target.closest?ev.target.closest(".plot[data-row]"):null}
function timeAt(el,ev){var b=el.getBoundingClientRect();return view[0]+(view[1]-view[0])*Math.min(1,Math.max(0,(ev.clientX-b.left)/b.width))}
document.addEventListener("pointermove",function(ev){
  if(drag){band(drag.x,ev.clientX);return}
  var t=ev.target.closest?ev.target.closest("[data-tip]"):null;
  if(t){show(ev,t.dataset.tip.split(" · "));return}
  var el=plotOf(ev);if(!el){hide();return}
  var box=el.getBoundingClientRect(),px=ev.clientX-box.left,py=ev.clientY-box.top,row=el.dataset.row,rows=null;
  if(row==="map")rows=mapRows(el,px,py,box);
  else{
    var at=timeAt(el,ev)*D.end;
    cross.hidden=false;cross.className="cross";cross.style.width="";
    cross.style.left=(ev.clientX-line.getBoundingClientRect().left)+"px";
    if(row==="rates")rows=rateRows(at);
    else{var b=barAt(+row,Math.floor(py/+el.dataset.lane),at,D.end*(view[1]-view[0])*4/box.width);
      rows=b?swathRows(b):[src(+row),["at",secs(at)]]}
  }
  if(rows)show(ev,rows);else hide();
});
document.addEventListener("pointerleave",hide);
addEventListener("scroll",hide,{passive:true});
all("[data-tip]",function(e){e.addEventListener("focus",function(){var b=e.getBoundingClientRect();show({clientX:b.left,clientY:b.bottom-14},e.dataset.tip.split(" · "))});e.addEventListener("blur",hide)});

// Zoom: every chart of the timeline shows the same window of time.
function step(span,n){var rough=span/n,p=Math.pow(10,Math.floor(Math.log10(rough))),f=[1,2,5,10];
  if(rough>1){var s=[1,2,5,10,15,30,60,120,300,600,900,1800,3600,7200,14400,21600,43200,86400];for(var i=0;i<s.length;i++)if(s[i]>=rough)return s[i]}
  for(var j=0;j<4;j++)if(f[j]*p>=rough*.999999)return f[j]*p;return 10*p}
function draw(){
  var a=view[0],w=view[1]-view[0],total=D.end/1e4,marks=[];
  var plot=line.querySelector(".rates"),px=plot?plot.clientWidth:1000;
  var st=step(total*w,Math.max(3,Math.min(12,px/85)));
  for(var t=Math.ceil(a*total/st-1e-9)*st;t<=(a+w)*total*1.000001;t+=st)marks.push(t);
  all("svg.tx",function(s){
    s.setAttribute("viewBox",(a*X)+" 0 "+(w*X)+" "+s.dataset.h);
    var g=s.querySelector(".grid");if(g)g.setAttribute("d",marks.map(function(t){return"M"+(t/total*X).toFixed(1)+" 0v"+s.dataset.h}).join(""));
    var bars=s.parentNode;
    if(bars.classList.contains("gantt")){var n=0,sum=0,list=bars._bars||(bars._bars=D.bars.filter(function(b){return b[0]===+bars.dataset.row&&b[3]>=0}));
      list.forEach(function(b){sum+=b[4]-b[3];n++});
      bars.classList.toggle("dense",n>0&&sum/n/D.end/w*px<5)}
  });
  var scale="scale("+(w*X/px)+" 1)",map=document.querySelector(".mapplot");
  all("pattern[id^=t]",function(p){p.setAttribute("patternTransform",scale)});
  if(map)all("pattern[id^=m]",function(p){p.setAttribute("patternTransform","scale("+(X/map.clientWidth)+" 1)")});
  all(".axis",function(x){x.textContent="";marks.forEach(function(t){var e=document.createElement("span"),l=(t/total-a)/w*100;
    e.style.left=l+"%";e.textContent=label(t);e.style.display="inline";e.style.transform=l<2?"none":l>97?"translateX(-100%)":"translateX(-50%)";x.appendChild(e)})});
  // Marks that would lie on each other become the first of them, with how many there are.
  var last=null,at=-1e9,tips=[];
  all(".marks .mark",function(m){var l=(+m.dataset.t/total-a)/w,x=l*px;m.style.left=l*100+"%";
    if(m.dataset.own===undefined){m.dataset.own=m.textContent;m.dataset.ownTip=m.dataset.tip}
    m.textContent=m.dataset.own;m.dataset.tip=m.dataset.ownTip;
    if(l<0||l>1){m.style.visibility="hidden";return}
    if(last&&x-at<24){m.style.visibility="hidden";last.n+=+m.dataset.n;last.m.textContent=last.n;
      tips=tips.concat(m.dataset.ownTip.split(" · "));if(tips.length<=12)last.m.dataset.tip=tips.join(" · ");return}
    m.style.visibility="";last={m:m,n:+m.dataset.n};at=x;tips=m.dataset.ownTip.split(" · ")});
}
function zoom(a,b){var w=Math.max(2e-5,Math.min(1,b-a));a=Math.max(0,Math.min(1-w,a));view=[a,a+w];hide();draw()}
function band(x0,x1){var l=line.getBoundingClientRect();cross.hidden=false;cross.className="cross sel";
  cross.style.left=(Math.min(x0,x1)-l.left)+"px";cross.style.width=Math.abs(x1-x0)+"px"}
// On a phone what takes much room is folded until it is wanted.
if(innerWidth<720)all("details.fold",function(e){e.open=false});
if(line){
  all(".zoom",function(z){z.hidden=false});
  line.addEventListener("pointerdown",function(ev){var el=plotOf(ev);if(!el||ev.button||ev.pointerType==="touch")return;
    drag={x:ev.clientX,at:timeAt(el,ev),el:el};tip.hidden=true;ev.preventDefault()});
  document.addEventListener("pointerup",function(ev){if(!drag)return;var d=drag;drag=null;cross.hidden=true;cross.style.width="";
    var to=timeAt(d.el,ev);if(Math.abs(ev.clientX-d.x)>5)zoom(Math.min(d.at,to),Math.max(d.at,to))});
  line.addEventListener("dblclick",function(){zoom(0,1)});
  document.addEventListener("click",function(ev){var z=ev.target.dataset&&ev.target.dataset.z;if(!z)return;
    var a=view[0],b=view[1],w=b-a,m=(a+b)/2;
    if(z==="in")zoom(m-w/4,m+w/4);else if(z==="out")zoom(m-w,m+w);else if(z==="left")zoom(a-w/2,b-w/2);
    else if(z==="right")zoom(a+w/2,b+w/2);else zoom(0,1)});
  addEventListener("resize",draw);draw();
}
})();
